"""How heterogeneous clients are: five numbers, near 0 for IID clients, each seeing its own kind of heterogeneity."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from covey.errors import UserError
from covey.parts.heterogeneity import (
    Heterogeneity,
    assignment,
    gini,
    label_skew,
    measure_heterogeneity,
    of_simulation,
    shift_and_conflict,
    spread,
)
from covey.parts.steps.class_means import class_table, sketches
from covey.parts.steps.privacy import Privacy
from covey.runs.config import fleet_of, resolve

SKEWED = {"name": "dir-class", "alpha": 0.3, "minimum": 10}
EVEN = {"name": "dir-class", "alpha": 10.0, "minimum": 10}


def measured(epsilon: float | None = None, **tables: object) -> Heterogeneity:
    fleet = fleet_of(resolve({"data": {"name": "digits", "clients": 24}, **tables}))
    try:
        return measure_heterogeneity(fleet, privacy=Privacy(epsilon=epsilon))
    finally:
        fleet.close()


def test_iid_clients_are_alike_in_every_way() -> None:
    found = measured(partition={"name": "iid"})
    assert all(found.level(name) == "low" for name in found.numbers()), found


@pytest.mark.parametrize(
    ("tables", "high", "low"),
    [
        ({"partition": SKEWED}, ["label_skew"], ["feature_shift", "concept_shift", "device_spread"]),
        (
            {"partition": EVEN, "shift": {"name": "rotation"}},
            ["feature_shift"],
            ["label_skew", "size_skew"],
        ),
        (
            {"partition": EVEN, "shift": {"name": "label"}},
            ["concept_shift"],
            ["label_skew", "feature_shift"],
        ),
        (
            {"partition": SKEWED, "shift": {"name": "rotation"}},
            ["label_skew", "feature_shift"],
            ["device_spread"],
        ),
        (
            {"partition": {"name": "iid"}, "devices": {"profile": "haccs"}},
            ["device_spread"],
            ["label_skew", "feature_shift"],
        ),
    ],
    ids=["label skew", "rotated", "label-permuted", "both", "slow devices"],
)
def test_each_form_of_heterogeneity_is_seen_and_no_other(
    tables: dict[str, object], high: list[str], low: list[str]
) -> None:
    found = measured(**tables)
    assert all(found.level(name) != "low" for name in high), found
    assert all(found.level(name) == "low" for name in low), found


def test_noise_hides_a_shift_but_never_makes_one_up() -> None:
    """60 samples per client and epsilon 1: the labels can still be seen, the pictures cannot."""
    alike = measured(1.0, partition={"name": "iid"})
    skewed = measured(1.0, partition={"name": "dir-class", "alpha": 0.1, "minimum": 10})
    assert alike.level("feature_shift") == alike.level("concept_shift") == "hidden"
    assert alike.level("label_skew") == "low"
    assert skewed.level("label_skew") != "low"


def test_label_skew_by_hand() -> None:
    """Two clients with one label each, 100 samples: both are 1/2 away from everybody's shares (1/2, 1/2).

    Chance: sqrt(2 / pi) sqrt(1/4 / 100) for each of the two labels, halved: 0.0399.
    """
    counts = np.array([[100.0, 0.0], [0.0, 100.0]])
    assert label_skew(counts) == pytest.approx(0.5 - math.sqrt(2 / math.pi) * 0.05)
    assert label_skew(np.full((2, 2), 50.0)) == 0.0


def test_gini_by_hand() -> None:
    assert gini(np.array([5.0, 5.0, 5.0])) == 0.0
    assert gini(np.array([0.0, 0.0, 9.0])) == pytest.approx(2 / 3)  # (n - 1) / n
    assert gini(np.array([1.0, 3.0])) == pytest.approx(0.25)  # |1 - 3| / (2 * 4)


def test_spread_is_the_slowest_tenth_over_the_median() -> None:
    assert spread(np.array([2.0] * 11)) == 0.0
    assert spread(np.arange(1.0, 12.0)) == pytest.approx(10 / 6 - 1)  # the quantile 0.9 of 1..11 is 10


def clients(*means: list[list[float]]) -> np.ndarray:
    """Tables of clients whose samples of a class are all alike, 100 of each."""
    tables = []
    for rows in means:
        table = np.zeros((len(rows), len(rows[0]) + 2))
        table[:, 0] = 100
        table[:, 1:-1] = 100 * np.array(rows)
        table[:, -1] = 100 * len(rows[0]) * (np.array(rows) ** 2).sum(axis=1)
        tables.append(table)
    return np.stack(tables)


def test_renamed_classes_are_conflict_and_moved_ones_are_shift() -> None:
    """Two classes at (0, 0, 0, 0) and (1, 1, 0, 0): 2 apart. Swapped names: D_aa = 2, the best assignment 0."""
    low, high = [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]
    assert shift_and_conflict(clients([low, high], [high, low])) == pytest.approx((0.0, 1.0))
    moved = [[0.0, 0.0, 0.5, 0.5], [1.0, 1.0, 0.5, 0.5]]  # both classes moved by a squared distance of 0.5
    assert shift_and_conflict(clients([low, high], moved)) == pytest.approx((0.25, 0.0))


def test_a_description_adds_at_most_one_to_each_part_of_the_table() -> None:
    sketch = sketches(100 * np.random.default_rng(0).standard_normal((50, 1, 8, 8)), 16)
    assert np.abs(sketch).sum(axis=1).max() <= 1 + 1e-12
    table = class_table(sketch[:1], np.array([2]), np.array([0.0, 0.0, 1.0]))
    assert np.abs(table).sum() <= 3.0
    assert not table[:2].any()


def test_a_fleet_without_classes_is_refused() -> None:
    import torch

    import covey
    from covey.data import from_tensors
    from covey.training.objective import Regression

    data = covey.federate(from_tensors(torch.rand(60, 3), torch.rand(60)), partition="iid", clients=3, seed=0)
    fleet = covey.LocalFleet(data, torch.nn.Linear(3, 1), objective=Regression(), seed=0)
    with pytest.raises(UserError, match="class by class"):
        measure_heterogeneity(fleet)


def test_the_report_says_the_same_as_asking_the_clients() -> None:
    """A fleet small enough to be looked at whole; two devices that are three times as slow."""
    special = [{"clients": [0, 1], "compute": 3.0}]
    tables = {
        "data": {"clients": 6},
        "partition": {"name": "dir-class", "alpha": 0.3},
        "devices": {"special": special},
    }
    fleet = fleet_of(resolve(tables))
    assert max(len(share.train) for share in fleet.data.shares) > 200  # some samples are left out
    asked, seen = measure_heterogeneity(fleet).numbers(), of_simulation(fleet)
    assert list(asked) == list(seen)
    for name in ("label_skew", "size_skew", "device_spread"):
        assert seen[name] == pytest.approx(asked[name])
    assert seen["feature_shift"] == pytest.approx(asked["feature_shift"], abs=0.05)
    fleet.close()


def test_a_fleet_without_classes_has_sizes_and_devices() -> None:
    config = resolve({"objective": "regression", "data": {"name": "diabetes"}})
    fleet = fleet_of(config)
    found = of_simulation(fleet)
    assert list(found) == ["size_skew", "device_spread"]
    sizes = sorted(len(share.train) for share in fleet.data.shares)
    by_hand = sum(abs(a - b) for a in sizes for b in sizes) / (2 * len(sizes) * sum(sizes))
    assert found["size_skew"] == pytest.approx(by_hand)
    fleet.close()


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
