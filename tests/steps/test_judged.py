"""Training that judges itself on data kept out of it."""

from __future__ import annotations

import pytest
import torch

from covey.core import Task
from covey.fleet.devices import Devices
from covey.statistics import Known
from covey.steps import Train
from covey.steps.judged import JudgedTrain
from covey.testing import small_fleet


def asked(fleet, number: int, row: torch.Tensor, slot: int = 0):
    """What client 0 tells in that round, when it is sent that model."""
    fleet.begin(number)
    step = JudgedTrain(train=Train(lr=0.1, epochs=1))
    return fleet.ask(step, {0: Task(models=row[None], slots=(slot,))})[0].stats


def test_progress_is_the_loss_on_the_samples_that_rested_then_and_now() -> None:
    fleet = small_fleet()
    first, other = fleet.start(), 0.5 * fleet.start()
    told = [asked(fleet, 1, first), asked(fleet, 3, other), asked(fleet, 11, first), asked(fleet, 13, other)]
    assert "progress" not in told[0]  # nothing to compare with
    then, after = told[1]["progress"]
    assert then == told[0]["losses"][0]
    # round 11 keeps out the same tenth as round 1, and round 13 the same as round 3
    assert told[2]["losses"][0] == pytest.approx(then)
    assert told[3]["progress"][0] == pytest.approx(then)
    assert told[3]["progress"][1] == pytest.approx(after)


def test_another_model_or_other_data_tell_no_progress() -> None:
    fleet = small_fleet(devices=Devices(drifts=[{"clients": [0], "round": 4, "turns": 1}]))
    row = fleet.start()
    asked(fleet, 1, row)
    assert "progress" not in asked(fleet, 2, row, slot=1)
    assert "progress" in asked(fleet, 3, row, slot=1)
    assert "progress" not in asked(fleet, 4, row, slot=1)
    assert "progress" in asked(fleet, 5, row, slot=1)


@pytest.mark.parametrize("samples", [1, 2, 9, 54, 160, 180, 200, 333, 1500])
def test_no_honest_number_of_batches_is_refused(samples: int) -> None:
    """180 samples make 4 epochs of 12 batches, the 162 that are left without a tenth 5 of 11."""
    step = JudgedTrain(train=Train())
    most = step.expects(Known(train=samples, classes=10))["batches"].high
    for judging in {samples // 10, -(-samples // 10)} - {samples}:
        rest = samples - judging
        assert Train().epochs_for(rest) * -(-rest // Train().batch) <= most
