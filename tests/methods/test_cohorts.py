"""Auxo's cohorts: rewards, halves and the cut of a cohort, with numbers by hand."""

import numpy as np
import pytest
import torch

from covey.core.round import Round, Task
from covey.methods.auxo import (
    PARENTS,
    REWARDS,
    SIDES,
    ByRewards,
    RememberRewards,
    halves,
    one_per_cohort,
    rewards,
)
from tests.made_up_rounds import make_round

TWO_WAYS = {0: [1.0, 0.1], 1: [1.0, -0.1], 2: [-1.0, 0.1], 3: [-1.0, -0.1]}


def test_rewards_by_hand() -> None:
    """Updates 0, 0, 3: their mean is 1, the distances 1, 1, 2, of mean 4/3 and deviation sqrt(2)/3: 1 - d / 1.8047."""
    usual = 4 / 3 + np.sqrt(2) / 3
    found = rewards(np.array([[0.0], [0.0], [3.0]]))
    assert found.tolist() == pytest.approx([1 - 1 / usual, 1 - 1 / usual, 1 - 2 / usual])
    assert rewards(np.zeros((3, 2))).tolist() == [1, 1, 1]


def test_halves_are_found_once_and_then_joined() -> None:
    updates = np.array(list(TWO_WAYS.values()))
    first = halves(updates, [None] * 4, seed=0)
    assert (first[0], first[0] == first[1], first[2] == first[3], first[0] != first[2]) == (
        0,
        True,
        True,
        True,
    )
    assert halves(updates, [1, None, 0, None], seed=0) == [1, 1, 0, 0]
    assert halves(updates, [None, None, 1, None], seed=0) == [0, 0, 1, 1]
    assert halves(np.ones((3, 2)), [None] * 3, seed=0) == [0, 0, 0]


def one_round(clients: int) -> Round:
    """Four clients answered; so many are in the one cohort."""
    now = make_round((0.0, 0.0), replies={i: (way, 1) for i, way in TWO_WAYS.items()}, number=1)
    now.tasks = dict.fromkeys(TWO_WAYS, Task(models=now.models, slots=(0,)))
    now.groups = dict.fromkeys(range(clients), 0)
    return now


def test_a_cohort_is_cut_when_both_halves_are_known() -> None:
    """Four clients, all known after one round, two on each side; 0's side stays, the other gets the same model."""
    now = one_round(clients=4)
    RememberRewards(most=2)(now)
    assert PARENTS.of(now.memory) == [0, 0]
    kept = REWARDS.of(now.memory)
    assert ({*kept[0]}, {*kept[1]}) == ({0, 1}, {2, 3})
    one = rewards(np.array(list(TWO_WAYS.values())))
    assert kept[1][2] == pytest.approx(1 + one[2])
    now.models = torch.tensor([[5.0, 6.0]])
    assert one_per_cohort(now).tolist() == [[5, 6], [5, 6]]
    now.seen, now.number = (0, 1, 2, 3), 2
    assert ByRewards(explore=0.0)(now) == {0: 0, 1: 0, 2: 1, 3: 1}
    RememberRewards(most=2)(now)  # no more than two cohorts
    assert PARENTS.of(now.memory) == [0, 0]


def test_it_waits_until_enough_are_known() -> None:
    now = one_round(clients=10)  # four of ten are known
    RememberRewards()(now)
    assert PARENTS.of(now.memory) == [0]
    assert sorted(SIDES.of(now.memory)[0]) == [0, 1, 2, 3]
