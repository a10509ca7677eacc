"""Training that judges itself on data kept out of it."""

from __future__ import annotations

import pytest

from covey.core.reply_schema import Known
from covey.parts.steps import Train
from covey.parts.steps.judged import JudgedTrain


@pytest.mark.parametrize("samples", [1, 2, 9, 54, 160, 180, 200, 333, 1500])
def test_no_honest_number_of_batches_is_refused(samples: int) -> None:
    """180 samples make 4 epochs of 12 batches, the 162 that are left without a tenth 5 of 11."""
    step = JudgedTrain(train=Train())
    most = step.expects(Known(train=samples, classes=10))["batches"].high
    for judging in {samples // 10, -(-samples // 10)} - {samples}:
        rest = samples - judging
        assert Train().epochs_for(rest) * -(-rest // Train().batch) <= most
