"""FedFa's weights by hand, and both signs of its server momentum."""

import numpy as np
import pytest
import torch

from covey.core.round import run_rounds
from covey.errors import UserError
from covey.methods.fedfa import FairAverage, ServerMomentum, fair_weights, fedfa
from covey.parts.steps import Train


def test_weights_worked_by_hand() -> None:
    """Accuracies .2 .6, shares 1/4 and 3/4: a ~ 2 and .415037; times 3 1: b ~ -log2(1/4) = 2 and .415037.

    Both sum to 2.415037, so a = b = (.828145, .171855); the small constants move the fifth digit.
    """
    weights = fair_weights(np.array([0.2, 0.6]), np.array([3.0, 1.0]), beta=0.5)
    assert weights == pytest.approx([0.828145, 0.171855], abs=1e-4)
    assert weights.sum() == pytest.approx(1.0)


def test_beta_chooses_between_accuracy_and_frequency() -> None:
    accuracy, times = np.array([0.2, 0.6]), np.array([1.0, 3.0])
    assert fair_weights(accuracy, times, 0.0) == pytest.approx([0.828145, 0.171855], abs=1e-4)
    assert fair_weights(accuracy, times, 1.0) == pytest.approx([0.171855, 0.828145], abs=1e-4)


def test_edges() -> None:
    assert fair_weights(np.zeros(4), np.ones(4), 0.5) == pytest.approx(np.full(4, 0.25))
    assert fair_weights(np.array([0.9]), np.array([5.0]), 0.5).tolist() == [1.0]
    lone = fair_weights(np.array([1.0, 0.0]), np.ones(2), 0.0)
    assert lone.tolist() == [0.0, 1.0]


def test_times_are_counted_over_rounds(a_round) -> None:
    told = {0: {"accuracy": 0.5}, 1: {"accuracy": 0.5}}
    now = a_round((0.0,), replies={0: ((1.0,), 5)}, stats=told, memory={"fedfa.times": {0: 2, 7: 1}})
    FairAverage(beta=0.5)(now)
    assert now.memory["fedfa.times"] == {0: 3, 7: 1}


@pytest.mark.parametrize(
    ("momentum", "first_w", "second_w"), [("accelerate", 2.2, 4.58), ("published", 1.8, 3.42)]
)
def test_momentum_over_two_rounds(a_round, momentum: str, first_w: float, second_w: float) -> None:
    """lr 1, gamma .9. Round 1 goes from 0 to 2: m = -.2 (or +.2), w = 2.2 (or 1.8).

    Round 2 adds 2 on top: accelerating, m = .9 (-.2) + .1 (-2) = -.38, w = 4.2 + .38 = 4.58.
    Braking: m = .18 + .2 = .38, w = 3.8 - .38 = 3.42.
    """
    update = ServerMomentum(gamma=0.9, train=Train(lr=1.0), momentum=momentum)  # type: ignore[arg-type]
    first = a_round((0.0,), number=1)
    w = update(first, torch.tensor([[2.0]]))
    assert float(w) == pytest.approx(first_w)
    second = a_round((float(w),), number=2, memory=first.memory)
    assert float(update(second, w + 2.0)) == pytest.approx(second_w)


def test_runs_and_learns(digits_fleet) -> None:
    method = fedfa(Train(lr=0.02, epochs=2))
    assert method.local.train.momentum == 0.9
    state = run_rounds(method, digits_fleet(), rounds=3)
    assert sum(state.memory["fedfa.times"].values()) == 30
    assert torch.isfinite(state.models).all()


def test_wrong_settings_are_named() -> None:
    with pytest.raises(UserError, match="momentum is 'flgo'"):
        fedfa(Train(), momentum="flgo")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="gamma is 1"):
        fedfa(Train(), gamma=1)
