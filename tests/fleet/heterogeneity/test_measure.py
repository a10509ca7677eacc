"""How heterogeneous clients are: six numbers with intervals, each seeing its own sort of heterogeneity."""

from __future__ import annotations

import math

import numpy as np
import pytest

from covey.errors import UserError
from covey.fleet.heterogeneity.class_means import sketches, table_of_classes
from covey.fleet.heterogeneity.measure import (
    Heterogeneity,
    HeterogeneityMeasure,
    gini,
    jackknifed,
    label_skew,
    measure_heterogeneity,
    of_simulation,
    shifts,
    spread,
)
from covey.fleet.heterogeneity.words import level_of
from covey.parts.steps.privacy import Privacy
from covey.runs.config import fleet_of, resolve
from tests.fleet.heterogeneity.test_class_geometry import HIGH, LOW, exact

SKEWED = {"name": "dir-class", "alpha": 0.3, "minimum": 10}
EVEN = {"name": "dir-class", "alpha": 10.0, "minimum": 10}


def measured(epsilon: float | None = None, **tables: object) -> Heterogeneity:
    fleet = fleet_of(resolve({"data": {"name": "digits", "clients": 24}, **tables}))
    try:
        return measure_heterogeneity(fleet, privacy=Privacy(epsilon=epsilon))
    finally:
        fleet.close()


def test_iid_clients_are_alike_in_every_way_and_it_is_known() -> None:
    found = measured(partition={"name": "iid"})
    for name, one in found.measures().items():
        assert level_of(name, one.value) == "low", (name, one)
    assert found.label_skew.high < 0.02
    assert found.feature_shift.high < 0.05
    assert found.concept_shift.high < 0.05


@pytest.mark.parametrize(
    ("tables", "high", "low"),
    [
        ({"partition": SKEWED}, ["label_skew"], ["feature_shift", "concept_shift", "device_spread"]),
        ({"partition": EVEN, "shift": {"name": "rotation"}}, ["feature_shift"], ["label_skew", "size_skew"]),
        (
            {"partition": EVEN, "shift": {"name": "label"}},
            ["concept_shift"],
            ["label_skew", "feature_shift", "label_noise"],
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
    for name in high:
        assert level_of(name, getattr(found, name).low) != "low", (name, found)
    for name in low:
        assert level_of(name, getattr(found, name).low) == "low", (name, found)


def test_rotated_inputs_hide_whether_names_differ() -> None:
    found = measured(partition=EVEN, shift={"name": "rotation"})
    assert not found.concept_shift.known


def test_clients_that_share_no_class_are_not_called_alike() -> None:
    """Two clients with classes 0 and 1, two with 2 and 3, in halves of ten: nothing can be said across."""
    clients = [exact(LOW, HIGH, classes=[2 * i, 2 * i + 1], within=1.0, n=10) for i in range(4)]
    assert [math.isnan(one.value) for one in shifts(clients)] == [True, True, True]


def test_noise_hides_a_shift_but_never_makes_one_up() -> None:
    """60 samples per client and epsilon 1: the labels can still be seen, the pictures cannot."""
    alike = measured(1.0, partition={"name": "iid"})
    skewed = measured(1.0, partition={"name": "dir-class", "alpha": 0.1, "minimum": 10})
    assert not alike.feature_shift.known
    assert not alike.concept_shift.known
    assert alike.label_skew.low == 0.0
    assert skewed.label_skew.low > 0.1


def test_label_skew_by_hand() -> None:
    """Clients with one label each: two samples of one client never differ. Clients of equal halves: 50 and 50 of 100.

    There two samples of one client (drawn without replacement) differ with chance 100 / 198, of two clients 1 / 2.
    """
    assert label_skew(np.array([[100.0, 0.0], [0.0, 100.0], [100.0, 0.0]])).value == 1.0
    assert label_skew(np.full((3, 2), 50.0)).value == 0.0  # 1 - (100 / 198) / (1 / 2) is below 0
    # two labels 3 : 1, 1 : 3 of 4 samples: within 1/2 each, across the two (3 + 3) / 16 alike, 10 / 16 differ
    assert label_skew(np.array([[3.0, 1.0], [1.0, 3.0]])).value == pytest.approx(1 - (1 / 2) / (10 / 16))


def test_label_skew_recovers_the_dirichlet_parameter() -> None:
    """Of 10 labels with alpha 0.3 it is 1 / (10 * 0.3 + 1) = 0.25."""
    draw = np.random.default_rng(0)
    counts = np.stack([draw.multinomial(60, draw.dirichlet([0.3] * 10)) for _ in range(200)]).astype(float)
    found = label_skew(counts)
    assert found.low < 0.25 < found.high
    assert found.high - found.low < 0.08


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    """Of .1, .2, .3, .4: deviation .1291, error .06455, t(3) = 3.1824."""
    values = np.array([0.1, 0.2, 0.3, 0.4])
    found = jackknifed(0.25, (values.sum() - values) / 3)
    assert found.value == pytest.approx(0.25)
    assert found.high == pytest.approx(0.25 + 3.1824 * 0.06455, abs=1e-4)
    assert jackknifed(0.3, np.array([0.2, 0.4])) == HeterogeneityMeasure(0.3, 0.0, 1.0)  # two clients
    assert not HeterogeneityMeasure(0.3, 0.0, 1.0).known


def test_swapped_names_are_concept_shift_and_moved_classes_are_feature_shift() -> None:
    """Four clients, two of which call the classes the other way round: 4 of 6 pairs differ in both names.

    Names lost: 1/2 * (1 + 1) / 1 of each such pair, so 4 / 6. Moved by 1 where classes are 4 apart in 4 of 6 pairs:
    D = 4, A = 24, D / (D + A) = 1 / 7.
    """
    swapped = [exact(*(pair), within=1e-9) for pair in ([LOW, HIGH], [HIGH, LOW], [LOW, HIGH], [HIGH, LOW])]
    shift, concept, _ = shifts(swapped)
    assert (shift.value, concept.value) == pytest.approx((0.0, 4 / 6))
    moved = [exact([0.0, y], [2.0, y], within=1e-9) for y in (0.0, 1.0, 0.0, 1.0)]
    shift, concept, _ = shifts(moved)
    assert (shift.value, concept.value) == pytest.approx((1 / 7, 0.0))
    assert concept.known


def test_random_labels_of_some_clients_are_noticed() -> None:
    """The labels of 4 of 12 clients of the digits are drawn at random for two fifths of their samples."""
    draw = np.random.default_rng(0)
    fleet = fleet_of(resolve({"data": {"name": "digits", "clients": 12}, "partition": {"name": "iid"}}))
    clients = []
    for number, share in enumerate(fleet.data.shares):
        x, y = (tensor.numpy() for tensor in share.train.tensors())
        if number < 4:
            y = np.where(draw.random(len(y)) < 0.4, draw.integers(0, 10, len(y)), y)
        clients.append((x, y, draw.integers(0, 2, len(y))))
    fleet.close()
    from covey.fleet.heterogeneity.class_geometry import described

    tables = [table_of_classes(sketches(x, 32), y, halves, 10) for x, y, halves in clients]
    shift, concept, noise = shifts([described(table, 0.0) for table in tables])
    assert noise.value == pytest.approx(4 / 12)
    assert noise.known
    assert shift.high < 0.1  # who is noisy does not count for a shift
    assert concept.high < 0.1


def test_gini_by_hand() -> None:
    assert gini(np.array([5.0, 5.0, 5.0])) == 0.0
    assert gini(np.array([0.0, 0.0, 9.0])) == pytest.approx(2 / 3)  # (n - 1) / n
    assert gini(np.array([1.0, 3.0])) == pytest.approx(0.25)  # |1 - 3| / (2 * 4)


def test_spread_is_the_slowest_tenth_over_the_median() -> None:
    assert spread(np.array([2.0] * 11)) == 0.0
    assert spread(np.arange(1.0, 12.0)) == pytest.approx(10 / 6 - 1)  # the quantile 0.9 of 1..11 is 10


def test_a_sample_that_a_servers_scale_makes_endless_adds_no_more_than_any_other() -> None:
    """inf - inf is no number, and a sum with it none: one sample would take away all that the others add."""
    odd = sketches(np.array([[np.inf, np.inf], [np.nan, 1.0], [1.0, 2.0]]), 8)
    assert np.isfinite(odd).all()
    assert np.abs(odd).sum(axis=1).max() <= 1.0


def test_a_description_adds_at_most_one_to_each_part_of_the_table() -> None:
    sketch = sketches(100 * np.random.default_rng(0).standard_normal((50, 1, 8, 8)), 16)
    assert np.abs(sketch).sum(axis=1).max() <= 1 + 1e-12
    table = table_of_classes(sketch[:1], np.array([2]), np.array([1]), 3)
    assert np.abs(table).sum() <= 3.0
    assert not table[0].any()
    assert not table[1, :2].any()


def test_a_fleet_without_classes_is_refused() -> None:
    import torch

    import covey
    from covey.data import from_tensors
    from covey.training.objective import Regression

    data = covey.federate(from_tensors(torch.rand(60, 3), torch.rand(60)), partition="iid", clients=3, seed=0)
    fleet = covey.LocalFleet(data, torch.nn.Linear(3, 1), objective=Regression(), seed=0)
    with pytest.raises(UserError, match=r"class by class.*compare covey, fedper"):
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
    assert set(seen) <= set(asked)
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
