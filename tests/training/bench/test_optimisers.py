"""Optimisers by name: built in, of torch, of one's own; the same on every engine, and on a site only what it allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from covey.deploy.wire import step_from_plain, step_to_plain
from covey.errors import Refused, UserError
from covey.parts.steps import Train
from covey.runs.config import resolve
from covey.runs.run import run_config
from covey.settings.registry import only_installed
from covey.training.bench import Recipe
from covey.training.bench.torch_bench import TorchBench
from covey.training.objective import Classification
from covey.training.rows import read_row

LION = """
import torch


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, weight_decay=0.0, beta: float = 0.9):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "beta": beta})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                p.add_(m.sign(), alpha=-group["lr"])
"""


@pytest.fixture
def lion(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(LION)
    return f"{tmp_path / 'mine.py'}:Lion"


def test_one_of_torch_makes_the_steps_of_torch() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 3), torch.randn(16, 4), torch.randint(3, (16,))
    batches = [np.arange(8), np.arange(8, 16)]
    table = {"name": "torch.optim:AdamW", "betas": [0.8, 0.9]}
    recipe = Recipe(optimiser=table, lr=0.01, weight_decay=0.1)
    fit = TorchBench(model, Classification()).fit(read_row(model), x, y, batches, recipe, seed=0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1, betas=(0.8, 0.9))
    for batch in batches:
        optimiser.zero_grad()
        functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()
    assert torch.allclose(fit.row, read_row(model), atol=1e-6)


def test_ones_own_trains_a_run_to_the_same_bits_on_every_engine(lion: str, tmp_path: Path) -> None:
    rows = []
    for mode in ("serial", "threads", "wire"):
        tables = {
            "rounds": 2,
            "data": {"clients": 4},
            "train": {"optimiser": {"name": lion, "beta": 0.5}, "lr": 0.01},
            "engine": {"mode": mode, "workers": 2},
        }
        done = run_config(resolve(tables), tmp_path / mode, report=False)
        rows.append(done.state.models)
        assert [origin.kind for origin in done.summary.own] == ["optimiser"]
    assert torch.equal(rows[0], rows[1])
    assert torch.equal(rows[0], rows[2])
    plain = run_config(
        resolve({"rounds": 2, "data": {"clients": 4}, "train": {"lr": 0.01}}), tmp_path / "sgd", report=False
    )
    assert not torch.equal(rows[0], plain.state.models)


def test_a_name_alone_stays_as_short_as_it_was_written() -> None:
    assert resolve({})["train"]["optimiser"] == "sgd"
    assert resolve({"train": {"optimiser": "adam"}})["train"]["optimiser"] == "adam"


@pytest.mark.parametrize(
    ("train", "sentence"),
    [
        ({"optimiser": "adm"}, "train.optimiser = 'adm' is not known; did you mean adam?"),
        ({"optimiser": {"name": "LION", "beat": 1}}, "train.optimiser.beat is not known; did you mean beta?"),
        ({"optimiser": "LION", "momentum": 0.9}, "train.momentum is 0.9, which optimiser"),
    ],
)
def test_a_mistake_is_one_sentence(lion: str, train: dict[str, object], sentence: str) -> None:
    chosen = train["optimiser"]
    named = {**chosen, "name": lion} if isinstance(chosen, dict) else chosen.replace("LION", lion)
    with pytest.raises(UserError) as error:
        resolve({"train": {**train, "optimiser": named}})
    assert str(error.value).startswith(sentence)


def test_a_site_takes_only_what_it_allows_itself(lion: str) -> None:
    plain = step_to_plain(Train(optimiser=lion, lr=0.01))
    assert plain["settings"]["optimiser"] == "Lion"  # no path travels
    with only_installed(), pytest.raises(Refused, match=r"train\.optimiser = 'Lion' is not known"):
        step_from_plain(plain)
    with only_installed({"Lion": lion}):
        assert step_from_plain(plain) == Train(optimiser="Lion", lr=0.01)
