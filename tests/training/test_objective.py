"""Not only images: regression on tables, text, and a loss of one's own."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covey import Engine, LocalFleet, Train, federate, run_rounds, scores
from covey.data import from_tensors
from covey.errors import UserError
from covey.methods.baselines import fedavg, fedprox
from covey.methods.haccs import haccs
from covey.training.metrics import perplexity
from covey.training.models import build
from covey.training.objective import Classification, NextToken, Regression

SERIAL = Engine(mode="serial")


def test_regression_on_a_table_finds_the_line() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 3)).astype(np.float32)
    y = (x @ np.float32([1.0, -2.0, 0.5]) + 0.3).astype(np.float32)[:, None]
    data = from_tensors(torch.from_numpy(x), torch.from_numpy(y))
    federation = federate(data, partition="iid", clients=4, seed=0)
    torch.manual_seed(0)
    fleet = LocalFleet(federation, nn.Linear(3, 1), objective=Regression(), engine=SERIAL)
    method = fedavg(Train(lr=0.1, batch=20), per_round=4)
    state = run_rounds(method, fleet, rounds=15)
    assert torch.allclose(state.models[0], torch.tensor([1.0, -2.0, 0.5, 0.3]), atol=1e-3)
    assert scores(method, state, fleet)["global-test/mse"] < 1e-5


class Bag(nn.Module):
    """Which of two halves of the vocabulary a text uses more."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(20, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.words(tokens))


def test_text_as_tokens_is_learnt() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    tokens = rng.integers(0, 10, (300, 6)) + 10 * y[:, None]
    data = from_tensors(torch.from_numpy(tokens), torch.from_numpy(y))
    federation = federate(data, partition="iid", clients=3, seed=0)
    torch.manual_seed(0)
    fleet = LocalFleet(federation, Bag(), engine=SERIAL)
    method = fedprox(Train(lr=1.0, batch=16), per_round=3)
    state = run_rounds(method, fleet, rounds=8)
    assert scores(method, state, fleet)["local-test/accuracy-mean"] > 0.95
    assert fleet.info["trainer"] == "torch"
    assert "not supported by lanes" in fleet.info["why"]


@dataclass(frozen=True)
class Smoothed(Classification):
    """A loss of one's own: label smoothing. No accelerator knows it."""

    kernel: ClassVar[str] = ""

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, target, label_smoothing=0.1)


def test_a_loss_of_ones_own_is_used() -> None:
    x, y = torch.randn(60, 1, 4, 4), torch.arange(60) % 3
    federation = federate(from_tensors(x, y), partition="iid", clients=2, seed=0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    rows = []
    for objective in (Smoothed(), Classification()):
        fleet = LocalFleet(federation, model, objective=objective, engine=SERIAL)
        rows.append(run_rounds(fedavg(Train(lr=0.1), per_round=2), fleet, rounds=1).models)
    assert not torch.allclose(*rows)


def test_haccs_groups_a_regression_by_its_targets() -> None:
    """Half of the clients have targets about 0.2, half about 0.8: two groups, and the model still learns."""
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1], 120)
    y = np.where(kind, 0.8, 0.2) + rng.normal(0, 0.02, 240)
    data = from_tensors(
        torch.from_numpy(y[:, None]).float(),
        torch.from_numpy(y[:, None]).float(),
        natural={"writer": np.repeat(np.arange(8), 30)},
    )
    fleet = LocalFleet(
        federate(data, partition="natural", clients=8, seed=0),
        nn.Linear(1, 1),
        objective=Regression(),
        engine=SERIAL,
    )
    method = haccs(Train(lr=0.1, epochs=1, batch=8), per_round=4, summary="targets", bins=5, epsilon=None)
    state = run_rounds(method, fleet, rounds=2)
    groups = [state.groups[i] for i in range(8)]
    assert len(set(groups)) == 2
    assert groups == [groups[0]] * 4 + [groups[4]] * 4


def test_the_next_token_at_every_place_that_is_no_padding() -> None:
    """Two texts of two and three tokens; the label follows the last one of each."""
    goal = NextToken()
    x, y = torch.tensor([[3, 1, 0], [2, 2, 1]]), torch.tensor([2, 3])
    target = goal.target(x, y)
    assert target.tolist() == [[1, 2, -100], [2, 1, 3]]
    outputs = torch.zeros(2, 4, 3)  # all four tokens alike: every loss is log 4
    outputs[0, 1, 0] = math.log(5.0)  # 5 of 8: log(8 / 5), and right
    told = goal.scores(outputs, target)
    by_hand = [(math.log(8 / 5) + math.log(4)) / 2, math.log(4)]
    assert told["loss"].tolist() == pytest.approx(by_hand)
    assert told["accuracy"].tolist() == [0.5, 0.0]
    over_tokens = (math.log(8 / 5) + 4 * math.log(4)) / 5
    assert float(goal.loss(outputs, target)) == pytest.approx(over_tokens)
    assert perplexity.value(outputs, target) == pytest.approx(math.exp(over_tokens))


def test_next_token_needs_tokens() -> None:
    with pytest.raises(UserError, match='objective is "next-token", and samples are'):
        NextToken().target(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))


def test_a_pattern_is_learnt_token_by_token() -> None:
    """a b c a b c ...: what follows is certain, so that perplexity falls towards 1."""
    tokens = (np.arange(200)[:, None] + np.arange(6)) % 3 + 1
    data = from_tensors(
        torch.from_numpy(tokens), torch.from_numpy((np.arange(200) + 6) % 3 + 1), classes=("", *"abc")
    )
    federation = federate(data, partition="iid", clients=2, seed=0)
    model = build("lstm", input_shape=(6,), outputs=4, hidden=16, depth=1)
    fleet = LocalFleet(federation, model, objective=NextToken(), engine=SERIAL)
    method = fedavg(Train(lr=2.0, batch=16, clip=1.0), per_round=2)
    state = run_rounds(method, fleet, rounds=6)
    found = scores(method, state, fleet)
    assert found["local-test/accuracy-mean"] > 0.95
    assert found["local-test/loss-mean"] < 0.2
