"""How the classes of two clients lie to one another: numbers worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from covey.fleet.heterogeneity.class_geometry import (
    Described,
    assignment,
    beside_others,
    compare,
    described,
    told_by_labels,
)
from covey.fleet.heterogeneity.class_means import table_of_classes

LOW, HIGH = [0.0, 0.0], [2.0, 0.0]


def exact(
    *means: list[float], classes: list[int] | None = None, within: float = 0.0, n: float = 1e12
) -> Described:
    """A client whose class means are known, the same in both halves."""
    which = np.array(classes or range(len(means)), dtype=np.int64)
    whole = np.stack([np.array(means)] * 3)
    return Described(which, whole, np.full((3, len(means)), n), np.full(3, within), 0.0)


def test_the_geometry_of_moved_classes_by_hand() -> None:
    """Classes at (0, 0) and (2, 0), at the other client both moved by (0, 1).

    About the middles (1, 0) and (1, 1) the class means are (-1, 0) and (1, 0): length 1, same 1; offset 1. Two classes
    are 4 apart, a class is 1 from itself.
    """
    found = compare([exact(LOW, HIGH), exact([0.0, 1.0], [2.0, 1.0])])
    assert [float(x[0]) for x in (found.k, found.offset, found.length, found.same, found.renamed)] == [
        2,
        1,
        1,
        1,
        1,
    ]
    assert found.apart().tolist() == [4.0]
    assert found.distance(found.same).tolist() == [1.0]


def test_swapped_names_agree_after_renaming() -> None:
    """Inner products of (-1, 0), (1, 0) with (1, 0), (-1, 0): -1 by name, 1 after renaming."""
    found = compare([exact(LOW, HIGH), exact(HIGH, LOW)])
    assert (float(found.same[0]), float(found.renamed[0])) == (-1.0, 1.0)


def test_clients_without_two_common_classes_are_not_compared() -> None:
    found = compare([exact(LOW, HIGH, classes=[0, 1]), exact(LOW, HIGH, classes=[1, 2])])
    assert len(found.k) == 0
    assert np.isnan(
        beside_others([exact(LOW, HIGH, within=1.0), exact(LOW, HIGH, classes=[1, 2], within=1.0)])
    ).all()


def test_a_mean_is_corrected_for_chance() -> None:
    """A variance of 1 within classes, 10 samples: each mean's squared length is too large by 0.1 on average.

    Two classes, both clients: chance per class (0.2 + 0.2) / 2 = 0.2; the offset is 0 - 0.2 / 2 and the length
    1 - 0.2 / 2 / 2.
    """
    found = compare([exact(LOW, HIGH, within=1.0, n=10), exact(LOW, HIGH, within=1.0, n=10)])
    assert float(found.offset[0]) == pytest.approx(-0.1)
    assert float(found.length[0]) == pytest.approx(1 - 0.05)


def test_what_labels_say_is_the_variance_between_classes_over_that_within() -> None:
    """Means 2 apart: variance between them 1 + 1 = 2; less 1 / 10 for chance, over 1."""
    assert told_by_labels(exact(LOW, HIGH, within=1.0, n=10), np.array([0, 1])) == pytest.approx(1.9)


def test_a_client_is_measured_by_the_median_of_the_others() -> None:
    """Separations of 4 (three clients) and 1 (one): a quarter of what labels say elsewhere."""
    usual = [exact(LOW, HIGH, within=1.0) for _ in range(3)]
    assert beside_others([*usual, exact(LOW, [1.0, 0.0], within=1.0)]).tolist() == pytest.approx(
        [1, 1, 1, 0.25]
    )


@pytest.mark.filterwarnings("error")
def test_nothing_is_known_beside_clients_whose_rows_are_alike_within_classes() -> None:
    """No variance within classes at two of three: what labels say there has no bound to compare with."""
    alike, other = exact(LOW, HIGH), exact(LOW, HIGH, within=1.0)
    assert np.isnan(beside_others([alike, alike, other])).all()


def test_a_client_is_described_by_its_halves() -> None:
    """Class 0: 1 and 3 in the first half, 5 in the second; class 1 only in the first; all in one dimension."""
    y, halves = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 0])
    client = described(table_of_classes(np.array([[1.0], [3.0], [5.0], [9.0]]), y, halves, 2), 0.0)
    assert client.classes.tolist() == [0]
    assert client.means[:, 0, 0].tolist() == [2.0, 5.0, 3.0]
    assert client.within.tolist() == pytest.approx(
        [2.0, 0.0, 4.0]
    )  # (1 + 1) / 1, one sample, (4 + 0 + 4) / 2


@pytest.mark.parametrize("seed", range(20))
def test_the_assignment_is_the_cheapest_of_all(seed: int) -> None:
    costs = np.random.default_rng(seed).normal(size=(5, 5))
    each = [sum(costs[i, j] for i, j in enumerate(order)) for order in itertools.permutations(range(5))]
    chosen = assignment(costs)
    assert sorted(chosen.tolist()) == list(range(5))
    assert costs[np.arange(5), chosen].sum() == pytest.approx(min(each))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("classes", [10, 16, 17, 40])
def test_the_assignment_of_many_classes_is_as_cheap_as_scipys(classes: int, seed: int) -> None:
    costs = np.random.default_rng(seed).normal(size=(classes, classes)).round(1)  # with ties
    chosen = assignment(costs)
    assert sorted(chosen.tolist()) == list(range(classes))
    assert costs[np.arange(classes), chosen].sum() == pytest.approx(costs[linear_sum_assignment(costs)].sum())


def test_the_assignment_goes_by_the_sum_where_two_rows_want_one_column() -> None:
    # 0 + 5 for each its nearest is not allowed; 1 + 0 is cheaper than 0 + 5
    assert assignment(np.array([[0.0, 1.0], [0.0, 5.0]])).tolist() == [1, 0]
