"""Every number is named after what it was measured on, and is what its name says."""

import pytest

from covey.core import Reply, run
from covey.measure import Measuring, by_group, over_clients
from covey.methods.baselines import fedavg, local_only
from covey.metrics import Metric
from covey.steps import Train
from covey.testing import small_fleet

REPLIES = [
    Reply(id=i, size=n, stats={"accuracy": a}) for i, n, a in ((0, 10, 0.9), (1, 30, 0.5), (2, 60, 0.7))
]

UP = Metric(name="accuracy", higher_is_better=True)
DOWN = Metric(name="accuracy", higher_is_better=False)


def test_mean_weighted_spread_and_worst_by_hand() -> None:
    found = over_clients(REPLIES, UP)
    assert found["mean"] == pytest.approx(0.7)
    assert found["weighted"] == pytest.approx((9 + 15 + 42) / 100)
    assert found["std"] == pytest.approx((0.08 / 3) ** 0.5)
    assert found["worst10"] == pytest.approx(0.5)
    assert over_clients(REPLIES, DOWN)["worst10"] == pytest.approx(0.9)


def test_groups_have_numbers_of_their_own() -> None:
    assert [[r.id for r in part] for part in by_group(REPLIES, {0: 4, 2: 4, 1: 2}).values()] == [[1], [0, 2]]


def test_measured_every_so_many_rounds_and_after_the_last() -> None:
    fleet, method, rounds = small_fleet(), fedavg(Train()), []
    run(
        method,
        fleet,
        rounds=5,
        measure=Measuring(every=3),
        watchers=[lambda end: rounds.append(end.state.round) if end.measurements else None],
    )
    assert rounds == [3, 5]


def test_several_rows_are_measured_each_and_as_their_mean() -> None:
    fleet, method = small_fleet(), local_only(Train(lr=0.1))
    state = run(method, fleet, rounds=2)
    found = [m for m in Measuring(local_test=False)(method, state, fleet, True) if m.metric == "accuracy"]
    each = [m.value for m in found if m.group >= 0]
    (mean,) = (m.value for m in found if m.group == -1)
    assert len(each) == 8
    assert mean == pytest.approx(sum(each) / 8)


def test_every_client_is_measured_with_the_row_that_serves_it() -> None:
    fleet, method = small_fleet(), local_only(Train(lr=0.1))
    state = run(method, fleet, rounds=2)
    found = [m for m in Measuring(global_test=False)(method, state, fleet, True) if m.metric == "accuracy"]
    assert [m.client for m in found] == list(range(8))
