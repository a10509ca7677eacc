"""How far to adapt is found out at home, on held-out data."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from covey.core import Client, Task
from covey.parts.steps import Train, at_home
from covey.parts.steps.at_home import AT_HOME, HELD_OUT, share_at_home
from covey.parts.steps.served import Serving, TakeServed, share_of
from covey.testing import small_fleet


@pytest.mark.parametrize(("best", "share"), [(0.1, 0.0), (0.55, 0.5), (3.0, 1.0)])
def test_the_share_with_the_lowest_held_out_loss_is_taken(
    best: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is a number, 0 as it came and 1 as it was trained; its loss is its squared distance from `best`."""
    fleet = small_fleet()
    judged = []

    def loss(_client, row, judging) -> tuple[float, float]:
        judged.append(len(judging))
        return 0.0, float((row - best) ** 2)

    monkeypatch.setattr(at_home, "trained_before_use", lambda *_: torch.tensor(1.0))
    monkeypatch.setattr(at_home, "score", loss)
    share_of_0, rng = fleet.data.shares[0], np.random.default_rng(0)
    client = Client(
        id=0,
        train=share_of_0.train,
        test=share_of_0.test,
        state={},
        rng=rng,
        bench=None,  # type: ignore[arg-type]
        seed=0,
        round=1,
    )
    assert share_at_home(client, Train(), 1, torch.tensor(0.0)) == share
    assert sum(judged) == 3 * len(client.train)  # three shares on every sample, each held out once
    few = replace(client, train=client.train.select(slice(0, 5)))
    assert share_at_home(few, Train(), 1, torch.tensor(0.0)) == 0.0


def test_a_served_row_is_the_same_whoever_asks_and_its_share_is_not_told() -> None:
    fleet = small_fleet()
    fleet.begin(1)
    serving = Serving(adapt=Train(lr=0.2, epochs=2))
    task = Task(models=fleet.start()[None], slots=(0,), args={"own": HELD_OUT})
    first, second = (fleet.ask(TakeServed(serving=serving), {0: task}, measure=True)[0] for _ in range(2))
    assert torch.equal(first.vector, second.vector)
    assert share_of(task, serving) == AT_HOME
    assert not torch.equal(first.vector, fleet.start())  # an untrained model is worth training
