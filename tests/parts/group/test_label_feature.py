"""CFIC's label feature and the groups it makes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.round import Reply
from covey.parts.group.label_feature import LabelWhenChosen, by_label, label_feature

counts_of_clients = st.lists(st.integers(0, 50), min_size=2, max_size=12).filter(
    lambda counts: sum(counts) > 0
)


def printed_formula(counts: list[int]) -> int:
    """Eq. 2 as it is printed, wherever all its logarithms are finite."""
    shares = np.array(counts) / sum(counts)
    logs = np.log(np.abs(shares - 1 / len(counts)))
    return int(np.argmin(logs / logs.sum()))


@pytest.mark.parametrize(
    ("counts", "label"),
    [
        ([0, 0, 7, 0], 2),  # one label only
        ([30, 30, 39, 1], 3),  # 1/C = 25: the missing label stands out most (24 against 14)
        ([50, 50, 0, 0], 0),  # all deviate by 1/4: the larger share, then the smaller label
        ([25, 25, 25, 25], 0),  # nothing stands out
        ([25, 25, 40, 10], 2),  # two shares are exactly 1/C, where the printed ratio is not defined
        ([3, 7], 1),  # two labels always tie: the majority
    ],
)
def test_the_label_that_stands_out_most(counts: list[int], label: int) -> None:
    assert label_feature(np.array(counts)) == label


@given(counts_of_clients)
def test_is_what_the_printed_ratio_selects_where_that_is_defined(counts: list[int]) -> None:
    whole = np.abs(len(counts) * np.array(counts) - sum(counts))
    if (
        len(counts) == 2
        or (whole == 0).any()
        or (whole == whole.max()).sum() > 1
        or (whole == sum(counts)).any()
    ):
        return  # log 0, log 1 or a tie
    assert label_feature(np.array(counts)) == printed_formula(counts)


@given(counts_of_clients, st.integers(1, 9))
def test_does_not_depend_on_how_much_data_there_is(counts: list[int], times: int) -> None:
    assert label_feature(times * np.array(counts)) == label_feature(np.array(counts))


def tells(labels: dict[int, int]) -> dict[int, Reply]:
    return {i: Reply(id=i, stats={"label": label}) for i, label in labels.items()}


def test_everybody_is_asked_once_and_an_unseen_client_is_placed_at_once(a_round) -> None:
    now = a_round(here=[0, 1, 2], answers=tells({0: 4, 1: 4, 2: 7}))
    assert by_label(now) == {0: 4, 1: 4, 2: 7}
    later = a_round(here=[0, 1, 2, 9], groups={0: 4, 1: 4, 2: 7}, answers=tells({9: 7}))
    assert by_label(later) == {0: 4, 1: 4, 2: 7, 9: 7}
    assert later.fleet.asked == [[9]]


def test_who_does_not_answer_is_asked_again(a_round) -> None:
    now = a_round(here=[0, 1], answers=tells({0: 4}))
    now.groups = by_label(now)
    assert now.groups == {0: 4}
    now.fleet.answers |= tells({1: 5})
    assert by_label(now) == {0: 4, 1: 5}
    assert now.fleet.asked == [[0, 1], [1]]


def test_lazy_asks_only_who_was_chosen(a_round) -> None:
    now = a_round(here=[0, 1, 2], answers=tells({0: 4, 1: 5, 2: 6}))
    assert LabelWhenChosen(select=lambda _: [0, 2])(now) == [0, 2]
    assert now.groups == {0: 4, 2: 6}
