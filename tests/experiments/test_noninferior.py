"""Non-inferiority: numbers worked out by hand."""

import numpy as np
import pytest

from experiments.noninferior import p_of, pairs, sentence


def test_the_paired_t_test_by_hand() -> None:
    """d = (0, .01): mean .005, sd .00707, se .005; t = (.005 + .005) / .005 = 2 with one degree of freedom, whose
    upper tail is 1/2 - atan(2) / pi = .1476."""
    assert p_of(np.array([0.0, 0.01]), 0.005) == pytest.approx(0.5 - np.arctan(2) / np.pi)


def test_equal_differences_are_certain() -> None:
    assert p_of(np.array([-0.004, -0.004]), 0.005) == 0.0
    assert p_of(np.array([-0.005, -0.005]), 0.005) == 1.0


def test_holm_multiplies_the_surest_by_all_pairs() -> None:
    score = {"one": {"m": [0.5, 0.51], "a": [0.5, 0.5], "b": [0.6, 0.61]}}
    first, second = pairs(score, "m", ("a", "b"))
    assert (first.other, first.p) == ("a", pytest.approx(2 * (0.5 - np.arctan(2) / np.pi)))
    assert (second.other, second.p, second.difference) == ("b", 1.0, pytest.approx(-0.1))
    text = sentence([first, second], "m", "2 seeds")
    assert "in 0 of 2 pairs" in text
    assert "below the other's: b on one (-10.00)" in text
    assert "above: a on one (+0.50)" in text
