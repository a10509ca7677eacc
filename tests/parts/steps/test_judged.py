"""Training that judges itself on data kept out of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from covey.core.reply_schema import Known
from covey.parts.steps import Train
from covey.parts.steps.judged import JudgedTrain, score
from covey.testing import small_federation
from covey.training.objective import Classification


@pytest.mark.parametrize("samples", [1, 2, 9, 54, 160, 180, 200, 333, 1500])
def test_no_honest_number_of_batches_is_refused(samples: int) -> None:
    """180 samples make 4 epochs of 12 batches, the 162 that are left without a tenth 5 of 11."""
    step = JudgedTrain(train=Train())
    most = step.expects(Known(train=samples, classes=10))["batches"].high
    for judging in {samples // 10, -(-samples // 10)} - {samples}:
        rest = samples - judging
        assert Train().epochs_for(rest) * -(-rest // Train().batch) <= most


def test_a_sample_that_is_lost_counts_as_guessed_and_no_more() -> None:
    """Two samples: one right for sure, one wrong by 50: losses 0 and 50, of which log 10 counts."""
    judging = small_federation().shares[0].train.select(np.arange(2))
    labels = judging.labels().astype(np.int64)
    outputs = torch.zeros(2, 10)
    outputs[0, labels[0]] = outputs[1, (labels[1] + 1) % 10] = 50.0
    bench = SimpleNamespace(objective=Classification(), forward=lambda row, x: outputs)
    client: Any = SimpleNamespace(bench=bench)
    assert score(client, torch.zeros(1), judging) == pytest.approx((0.5, np.log(10) / 2), abs=1e-6)
