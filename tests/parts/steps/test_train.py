"""Local training: weight decay by samples."""

from __future__ import annotations

import pytest

from covey.errors import UserError
from covey.parts.steps.train import Train


@pytest.mark.parametrize(("samples", "decay"), [(20, 0.005), (200, 0.005), (400, 0.0025), (10_000, 0.0001)])
def test_weight_decay_by_samples_is_one_over_them_and_at_most_a_two_hundredth(
    samples: int, decay: float
) -> None:
    assert Train(weight_decay="samples").recipe(1, samples).weight_decay == pytest.approx(decay)
    assert Train(weight_decay=0.3).recipe(1, samples).weight_decay == 0.3


def test_a_word_that_is_no_decay_is_one_sentence() -> None:
    with pytest.raises(UserError, match="weight_decay"):
        Train(weight_decay="many")  # type: ignore[arg-type]
