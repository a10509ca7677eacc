"""Detectors of poisoned updates, with answers that can be seen."""

import numpy as np
import pytest
import torch

from covey.parts.mix.detect import Cosine, Spectral, median_cosines, spectral_scores
from covey.parts.mix.robust import Robust
from covey.runs.config import resolve

HONEST = [
    torch.tensor([1.0, 0.1]),
    torch.tensor([1.0, -0.1]),
    torch.tensor([1.1, 0.0]),
    torch.tensor([0.9, 0.0]),
]
START = torch.zeros(2)


@pytest.mark.parametrize("rule", [Spectral(hostile=1), Cosine(hostile=1)], ids=["spectral", "cosine"])
@pytest.mark.parametrize("bad", [[-1.0, 0.0], [-500.0, 3.0]], ids=["flipped", "scaled and flipped"])
def test_an_update_against_the_others_is_left_out(rule, bad) -> None:
    rows = [*HONEST, torch.tensor(bad)]
    found = rule.combine(rows, np.full(5, 0.2), START)
    assert found.tolist() == pytest.approx([1.0, 0.0], abs=1e-6)


def test_weights_of_those_that_are_left_count() -> None:
    rows = [torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]), torch.tensor([-9.0, 0.0])]
    found = Cosine(hostile=1).combine(rows, np.array([0.6, 0.2, 0.2]), START)
    assert found.tolist() == pytest.approx([1.25, 0.0])


def test_scores_by_hand() -> None:
    """Points at -1, 0, 1 on a line: squared shares 1, 0, 1 along it; cosines of a right angle and of the same way."""
    line = [torch.tensor([x, 1.0]) for x in (-1.0, 0.0, 1.0)]
    scores = spectral_scores([torch.nn.functional.normalize(v, dim=0) for v in line])
    assert scores[0] == pytest.approx(scores[2])
    assert scores[1] == pytest.approx(0.0, abs=1e-9)
    cosines = median_cosines([torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0])])
    assert cosines.tolist() == pytest.approx([0.5, 0.5, 0.0])


def test_never_half_of_the_replies_are_left_out() -> None:
    rows = [torch.tensor([1.0]), torch.tensor([3.0])]
    assert Spectral(hostile=5).combine(rows, np.array([0.5, 0.5]), torch.zeros(1)).tolist() == [2.0]


@pytest.mark.parametrize("name", ["spectral", "cosine"])
def test_any_method_can_have_them(name) -> None:
    method = resolve({"robust": {"name": name, "hostile": 2}}).method
    assert isinstance(method.mix, Robust)
