"""The fair schedule: who fits into which deadline, with numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest

from covey.errors import UserError
from covey.methods.haccs import haccs
from covey.parts.selection.fair import LAST_CHOSEN, FairSchedule, RoundPlaces, best_round, cluster_worth
from covey.parts.steps import Train

CLUSTERS = [np.array([0, 1, 2]), np.array([3])]
LATENCY = np.array([1.0, 2.0, 10.0, 4.0])


def fill(weight, age, deadline, *, count, rotation):
    """Who has a place when all who make the deadline have entered."""
    places = RoundPlaces(count=count)
    for cluster, (members, whole) in enumerate(zip(CLUSTERS, weight, strict=True)):
        share = (whole * age[members].min(), rotation * whole, len(members))
        for device in members:
            if LATENCY[device] <= deadline:
                places.enter(int(device), age[device], LATENCY[device], cluster, share)
    return places.first()


def by_definition(clusters, weight, age, latency, *, count, rotation, fullness):
    """Every deadline by itself, and all who make it."""
    best = (-1.0, [], 0.0)
    for deadline in np.unique(latency):
        options = []
        for members, whole in zip(clusters, weight, strict=True):
            there = members[latency[members] <= deadline]
            for taken, d in enumerate(there[np.lexsort((there, latency[there], -age[there]))]):
                kind = whole * age[members].min() / (2 * taken + 1)
                options.append((kind + rotation * whole * age[d] / len(members), int(d)))
        chosen = sorted(options, key=lambda option: (-option[0], option[1]))[:count]
        devices = [d for _, d in chosen]
        time = float(latency[devices].max())
        value = float(sum(worth for worth, _ in chosen)) ** fullness / max(time, 1e-12)
        if value > best[0] * (1 + 1e-12):
            best = (value, devices, time)
    return best[1], best[2]


@pytest.mark.parametrize("seed", range(30))
def test_devices_that_enter_one_after_the_other_make_the_round_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, names = int(rng.integers(3, 120)), int(rng.integers(1, 9))
    groups = np.concatenate([np.arange(names), rng.integers(names, size=size)])
    clusters = [np.flatnonzero(groups == name) for name in range(names)]
    age = rng.integers(1, rng.integers(2, 9), size=len(groups)).astype(float)
    latency = rng.choice([rng.random(len(groups)), rng.integers(1, 6, size=len(groups)).astype(float)])
    given = (clusters, rng.random(names) + 0.1, age, latency)
    how = {"count": int(rng.integers(1, 12)), "rotation": float(rng.choice([0.0, 0.5])), "fullness": 3.0}
    assert best_round(*given, **how) == by_definition(*given, **how)


def test_a_cluster_is_worth_its_size_times_a_power_of_its_loss() -> None:
    assert cluster_worth(CLUSTERS, np.array([4.0, 9.0]), 0.5).tolist() == [6.0, 3.0]
    assert cluster_worth(CLUSTERS, np.array([4.0, 9.0]), 0.0).tolist() == [3.0, 1.0]


def test_places_go_to_clusters_in_turn_and_inside_them_to_the_oldest() -> None:
    """Ages 1, 3, 5 and 2; W = 6 and 3, rotation 1, nobody too slow.

    Cluster 0 (its youngest age is 1): device 2 first, 6 * 1 / 1 + 6 * 5 / 3 = 16, then 1: 6 * 1 / 3 + 6 * 3 / 3 = 8,
    then 0: 6 / 5 + 2 = 3.2. Cluster 1: 3 * 2 + 3 * 2 / 1 = 12.
    """
    age = np.array([1.0, 3.0, 5.0, 2.0])
    chosen, worth = fill([6.0, 3.0], age, 10.0, count=3, rotation=1.0)
    assert (chosen, worth) == ([2, 3, 1], 36.0)


def test_without_rotation_divisors_share_the_places_out() -> None:
    """W = 6 and 3 at age 1: 6, 2, 1.2 and 3, so of three places cluster 0 has two."""
    chosen, worth = fill([6.0, 3.0], np.ones(4), 10.0, count=3, rotation=0.0)
    assert (chosen, worth) == ([0, 3, 1], 11.0), "of the same age the faster first"


def test_who_is_slower_than_the_deadline_does_not_work() -> None:
    chosen, _ = fill([6.0, 3.0], np.ones(4), 2.0, count=4, rotation=1.0)
    assert chosen == [0, 1]


def test_the_round_with_most_worth_for_its_time() -> None:
    """Without rotation and at age 1, two places: 6 in 1 s, 6 + 2 in 2 s, 6 + 3 in 4 s (nobody gains by 10 s).

    fullness 1: 6, 4, 2.25. fullness 4: 1296, 2048, 1640. fullness 16: 3^16 / 4 > 2^16 ... the fullest.
    """

    def by(fullness: float) -> tuple[list[int], float]:
        weight, age = np.array([6.0, 3.0]), np.ones(4)
        return best_round(CLUSTERS, weight, age, LATENCY, count=2, rotation=0.0, fullness=fullness)

    assert by(1.0) == ([0], 1.0)
    assert by(4.0) == ([0, 1], 2.0)
    assert by(16.0) == ([0, 3], 4.0)


def test_everybody_works_in_the_end() -> None:
    """A device 100 times slower than the others waits long, and then its age pays for the round."""
    clusters = [np.arange(5), np.arange(5, 10)]
    latency = np.array([1.0] * 9 + [100.0])
    last, counts = np.zeros(10), np.zeros(10)
    for number in range(1, 201):
        chosen, _ = best_round(
            clusters, np.ones(2), number - last, latency, count=3, rotation=1.0, fullness=2.0
        )
        last[chosen] = number
        counts[chosen] += 1
    assert counts.min() >= 1
    assert counts[9] < counts[:9].min(), "but seldom"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"schedule": "later"}, "schedule is 'later'; allowed: fair, published"),
        ({"fullness": -1.0}, r"fullness is -1.0; allowed: a number from 0 to 100"),
        ({"rho": 0.9}, r'rho is 0.9, which only schedule = "published" knows'),
        ({"draws": "quasi"}, r"draws is 'quasi', which only schedule"),
    ],
)
def test_mistakes_are_one_sentence(settings: dict, sentence: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(UserError, match=sentence):
        haccs(Train(), **settings)


def test_the_last_round_of_every_device_is_remembered() -> None:
    import covey

    data = covey.federate(covey.load("digits"), partition="dir-class", clients=8, alpha=0.3, seed=1)
    model = covey.models.build("mlp", input_shape=(1, 8, 8), outputs=10)
    fleet = covey.LocalFleet(data, model, seed=1)
    method = haccs(Train(lr=0.1), per_round=2)
    assert isinstance(method.select, FairSchedule)
    state = covey.run_rounds(method, fleet, rounds=8)
    assert set(map(int, LAST_CHOSEN.of(state.memory))) == set(range(8)), (
        "equal devices: all within n / k rounds or so"
    )
    assert max(LAST_CHOSEN.of(state.memory).values()) == 8


def test_without_a_profile_rounds_are_full_whatever_the_sizes() -> None:
    """Sizes from 20 to 300 and equal devices: HACCS hurries to the small ones, covey has no reason to."""
    import covey
    from covey.methods.covey import covey as by_covey

    data = covey.federate(covey.load("digits"), partition="quantity", clients=12, alpha=0.5, seed=1)
    model = covey.models.build("mlp", input_shape=(1, 8, 8), outputs=10)
    worked = {}
    for profile in ("ideal", "haccs"):
        devices = covey.Devices(profile=profile)
        fleet = covey.LocalFleet(data, model, seed=1, devices=devices)
        assert fleet.timed == (profile == "haccs")
        counts: list[int] = []
        covey.run_rounds(
            by_covey(Train(lr=0.1), per_round=4),
            fleet,
            rounds=4,
            watchers=[lambda end, counts=counts: counts.append(len(end.state.worked))],  # type: ignore[misc]
        )
        worked[profile] = counts
    assert worked["ideal"] == [4] * 4
