"""Training that judges itself on data kept out of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from covey.core.reply_schema import Known
from covey.parts.steps import Train
from covey.parts.steps.at_home import bounded, score
from covey.parts.steps.judged import JudgedTrain
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


def judged_outputs(outputs: torch.Tensor) -> tuple[float, float]:
    """The score of a model with these outputs for two samples of the classes 0 and 1."""
    judging = small_federation().shares[0].train.select(np.arange(len(outputs)))
    view: Any = SimpleNamespace(tensors=lambda: (judging.tensors()[0], torch.tensor([0, 1])))
    bench = SimpleNamespace(objective=Classification(), forward=lambda row, x: outputs)
    client: Any = SimpleNamespace(bench=bench)
    return score(client, torch.zeros(1), view)


def test_one_sample_of_which_a_model_is_wrongly_sure_costs_two_at_most() -> None:
    """One right for sure, one wrong by 50: Brier scores 0 and 2, where the log losses are 0 and 50."""
    assert judged_outputs(torch.tensor([[50.0, 0.0], [50.0, 0.0]])) == pytest.approx((0.5, 1.0), abs=1e-6)


def test_a_label_that_is_ruled_out_costs_no_more_than_even_shares_for_the_others() -> None:
    """Of four classes: sure of another one costs 1 + 1, bounded at 4 / 3, as (0, 1/3, 1/3, 1/3) costs 1 + 3 / 9."""
    sure, even = torch.tensor([[0.0, 50.0, 0.0, 0.0]]), torch.tensor([[-50.0, 0.0, 0.0, 0.0]])
    assert [float(bounded(outputs, torch.tensor([0]))[0]) for outputs in (sure, even)] == pytest.approx(
        [4 / 3, 4 / 3]
    )


def test_who_is_right_half_of_the_time_is_judged_best_when_it_says_so() -> None:
    """Chances (1/2, 1/2) cost 1/4 + 1/4 each; sure of one class costs 0 and 2; (3/4, 1/4) costs 2/16 and 18/16."""
    honest = judged_outputs(torch.zeros(2, 2))[1]
    surer = judged_outputs(torch.tensor([[np.log(3.0), 0.0]] * 2, dtype=torch.float32))[1]
    assert honest == pytest.approx(0.5)
    assert surer == pytest.approx(0.625)
