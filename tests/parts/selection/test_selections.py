"""Selections of the literature with numbers by hand."""

import numpy as np
import pytest

from covey.methods.divfl import most_central
from covey.methods.flips import equitable
from covey.methods.hics import entropy, heterogeneity
from covey.methods.refl import PRESENCE, LeastAvailable
from tests.made_up_rounds import make_round


def test_flips_serves_groups_in_turn_and_the_least_chosen_first() -> None:
    """Groups {0, 1, 2} and {3}; 0 was chosen twice, 3 once: group 1 was served less and is first."""
    groups, picks = {0: 0, 1: 0, 2: 0, 3: 1}, {0: 2, 3: 1}
    luck = {0: 0.1, 1: 0.9, 2: 0.2, 3: 0.5}
    assert equitable(groups, picks, 1, luck) == [3]
    assert equitable(groups, picks, 2, luck) == [2, 3]
    assert equitable(groups, picks, 9, luck) == [0, 1, 2, 3]


def test_hics_reads_the_label_mix_off_biases() -> None:
    """Equal biases have the entropy log 4; one that stands out has nearly none."""
    assert entropy(np.zeros(4), 1.0) == pytest.approx(np.log(4))
    assert entropy(np.array([9.0, 0, 0, 0]), 0.1) == pytest.approx(0, abs=1e-6)
    table = heterogeneity(np.eye(2), np.array([1.0, 0.5]), 10.0)
    assert table[0, 1] == pytest.approx(np.pi / 2 + 5)


def test_divfl_chooses_who_stands_for_the_most() -> None:
    """Places 0, 1, 2, 10 on a line: 1 first (1 + 0 + 1 + 9), then 10."""
    at = np.array([0.0, 1.0, 2.0, 10.0])
    assert most_central(np.abs(at[:, None] - at[None]), 2) == [1, 3]


def test_refl_takes_the_least_available_first() -> None:
    now = make_round(here=range(3))
    PRESENCE.keep(now.memory, {0: 5, 1: 1, 2: 3})
    assert LeastAvailable(per_round=2)(now) == [1, 2]
    assert PRESENCE.of(now.memory) == {0: 6, 1: 2, 2: 4}
