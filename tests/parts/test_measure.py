"""Every number is named after what it was measured on, and is what its name says."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from covey.core.round import Method, Reply, each_reply, run_rounds
from covey.errors import UserError
from covey.methods.baselines import fedavg, local_only
from covey.methods.personal import ditto, fedper, fine_tuned
from covey.parts.measure import Measuring, by_group, check_private_measure, on_local_tests, over_clients
from covey.parts.steps import Train
from covey.testing import small_fleet
from covey.training.metrics import Metric

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


def test_who_has_few_test_samples_counts_by_its_samples_only() -> None:
    sizes = sorted(reply.size for reply in REPLIES)
    least = sizes[1]
    everybody, enough = over_clients(REPLIES, UP), [r for r in REPLIES if r.size >= least]
    found = over_clients(REPLIES, UP, least)
    assert found["weighted"] == everybody["weighted"]
    assert found["mean"] == pytest.approx(sum(float(r.stats["accuracy"]) for r in enough) / len(enough))
    assert set(over_clients(REPLIES, UP, sizes[-1] + 1)) == {"weighted"}


def test_groups_have_numbers_of_their_own() -> None:
    assert [[r.id for r in part] for part in by_group(REPLIES, {0: 4, 2: 4, 1: 2}).values()] == [[1], [0, 2]]


def test_measured_every_so_many_rounds_and_after_the_last() -> None:
    fleet, method, rounds = small_fleet(), fedavg(Train()), []
    run_rounds(
        method,
        fleet,
        rounds=5,
        measure=Measuring(every=3),
        watchers=[lambda end: rounds.append(end.state.round) if end.measurements else None],
    )
    assert rounds == [3, 5]


def test_several_rows_are_measured_each_and_as_their_mean() -> None:
    fleet, method = small_fleet(), local_only(Train(lr=0.1))
    state = run_rounds(method, fleet, rounds=2)
    found = [m for m in Measuring(local_test=False)(method, state, fleet, True) if m.metric == "accuracy"]
    each = [m.value for m in found if m.group >= 0]
    (mean,) = (m.value for m in found if m.group == -1)
    assert len(each) == 8
    assert mean == pytest.approx(sum(each) / 8)


def test_every_client_is_measured_with_the_row_that_serves_it() -> None:
    fleet, method = small_fleet(), local_only(Train(lr=0.1))
    state = run_rounds(method, fleet, rounds=2)
    found = [m for m in Measuring(global_test=False)(method, state, fleet, True) if m.metric == "accuracy"]
    assert [m.client for m in found] == list(range(8))


class UnderNoise:
    """Replies as they are; evaluations under hardly any noise."""

    evaluations = 500.0
    __call__ = staticmethod(each_reply)


@pytest.mark.parametrize("make", [fine_tuned, ditto, fedper, fedavg])
def test_noisy_evaluations_score_the_model_that_a_client_uses(make: Callable[[Train], Method]) -> None:
    fleet, method = small_fleet(), make(Train(lr=0.1))
    state = run_rounds(method, fleet, rounds=2)
    noisy = replace(method, gather=UnderNoise())
    # training once more before use has a stream of its own, which is that of the tuned model where nothing comes before
    for settings in ({}, {"fine_tune": 2}) if method.adapt is None else ({},):
        exact, found = (
            {
                m.client: m.value
                for m in on_local_tests(one, state, fleet, **settings)
                if m.metric == "accuracy"
            }
            for one in (method, noisy)
        )
        assert found == pytest.approx(exact, abs=0.01)


def test_sites_are_not_asked_under_noise_how_good_a_model_is_that_they_trained_themselves() -> None:
    sites = SimpleNamespace(simulated=False, layout=small_fleet().layout)
    for make in (fine_tuned, ditto, fedper):
        with pytest.raises(UserError, match=r"noise for one test sample; clients of .* trained"):
            check_private_measure(Measuring(), replace(make(Train()), gather=UnderNoise()), sites)  # type: ignore[arg-type]
    check_private_measure(Measuring(), replace(fedavg(Train()), gather=UnderNoise()), sites)  # type: ignore[arg-type]
