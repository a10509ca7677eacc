"""Inter-cluster sampling: the budget, the quotas, the rotation."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.round import stream
from covey.errors import UserError
from covey.parts.selection.clusters import EveryCluster, sample_clusters


@st.composite
def clusterings(draw):
    sizes = draw(st.lists(st.integers(1, 9), min_size=0, max_size=15))
    ids = iter(range(1000))
    clusters = {label: [next(ids) for _ in range(size)] for label, size in enumerate(sizes)}
    others = [next(ids) for _ in range(draw(st.integers(0 if sizes else 1, 9)))]
    return clusters, others


@given(clusterings(), st.integers(1, 40), st.sampled_from(["equal", "published"]), st.integers(0, 99))
def test_the_budget_holds_for_any_number_of_clusters(clustering, count, quota, seed) -> None:
    clusters, others = clustering
    total = len(others) + sum(map(len, clusters.values()))
    chosen = sample_clusters(clusters, others, count, {}, stream(seed), quota=quota)
    assert len(chosen) == len(set(chosen)) == min(count, total)


@given(clusterings(), st.integers(1, 40), st.integers(0, 99))
def test_every_cluster_gets_its_quota(clustering, count, seed) -> None:
    clusters, others = clustering
    total = len(others) + sum(map(len, clusters.values()))
    if not 0 < len(clusters) <= min(count, total):
        return
    chosen = set(sample_clusters(clusters, others, count, {}, stream(seed)))
    for members in clusters.values():
        assert len(chosen & set(members)) >= min(min(count, total) // len(clusters), len(members))


def test_the_published_quota_is_one_a_cluster_and_chance_for_the_rest() -> None:
    clusters = {0: list(range(97)), 1: [97], 2: [98, 99]}
    counts = np.array(
        [sample_clusters(clusters, [], 9, {}, stream(s), quota="published") for s in range(400)]
    )
    small = (counts == 97).sum(1) + (counts >= 98).sum(1)
    assert small.min() >= 2  # 97, and one of 98 and 99, always
    # The other of 98 and 99 has 6 places out of 98 left: 2 + 6/98 = 2.06 (its standard error is 0.012).
    assert abs(small.mean() - 2.061) < 0.05


@pytest.mark.parametrize(("clusters", "places"), [(7, 3), (62, 30), (10, 9), (5, 1)])
def test_with_more_clusters_than_places_all_are_visited_in_rotation(
    a_round, clusters: int, places: int
) -> None:
    groups = {i: i % clusters for i in range(3 * clusters)}
    memory: dict = {}
    visits = []
    for number in range(1, 4 * ceil(clusters / places) + 1):
        now = a_round(here=sorted(groups), groups=groups, memory=memory, number=number)
        chosen = EveryCluster(per_round=places)(now)
        memory = now.memory
        assert len({groups[i] for i in chosen}) == places
        visits.append({groups[i] for i in chosen})
    turn = ceil(clusters / places)
    for start in range(len(visits) - turn + 1):
        assert set.union(*visits[start : start + turn]) == set(range(clusters))


def test_while_no_group_is_known_everybody_is_equally_likely(a_round) -> None:
    times = np.zeros(10)
    for number in range(2000):
        times[EveryCluster(per_round=3)(a_round(here=range(10), number=number))] += 1
    # 600 expected each; the standard deviation is sqrt(2000 * 0.3 * 0.7) = 20.5.
    assert abs(times - 600).max() < 5 * 20.5


def test_unreachable_clusters_do_not_take_places(a_round) -> None:
    now = a_round(here=[0, 1, 2, 3], groups={0: 0, 1: 0, 2: 1, 3: 1, 8: 5, 9: 6})
    chosen = EveryCluster(per_round=4)(now)
    assert chosen == [0, 1, 2, 3]


def test_wrong_settings_are_named() -> None:
    with pytest.raises(UserError, match="per_round is 0"):
        EveryCluster(per_round=0)
    with pytest.raises(UserError, match="quota is 'max'"):
        EveryCluster(per_round=1, quota="max")  # type: ignore[arg-type]
