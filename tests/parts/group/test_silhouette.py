"""K-means with k by silhouette: the curve, its bounds and ties, and which cluster is called the largest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from covey.errors import UserError
from covey.parts.group import silhouette
from covey.parts.group.silhouette import cluster, distances, largest_first, mean_silhouette


def heaps(centres: list[float], sizes: list[int], width: float = 0.01) -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.concatenate(
        [c + width * rng.standard_normal((n, 2)) for c, n in zip(centres, sizes, strict=True)]
    )


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_a_silhouette_worked_out_by_hand() -> None:
    """Points 0, 1 | 4 | 6: a = 1 inside, b = 4 and 3 to the nearest other cluster; a single point counts 0."""
    points = np.array([[0.0], [1.0], [4.0], [6.0]])
    scores = [(4 - 1) / 4, (3 - 1) / 3, 0.0, 0.0]
    assert mean_silhouette(distances(points), np.array([0, 0, 1, 2])) == pytest.approx(np.mean(scores))


@settings(max_examples=30, deadline=None)
@given(st.integers(5, 40), st.integers(2, 6), st.integers(0, 10_000))
def test_the_silhouette_is_scikit_learns(n: int, k: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    points = draw.random((n, 3))
    labels = np.unique(draw.integers(0, min(k, n - 1), n), return_inverse=True)[1]
    if labels.max() > 0:
        assert mean_silhouette(distances(points), labels) == pytest.approx(silhouette_score(points, labels))


def test_clear_heaps_are_found_and_the_largest_is_cluster_0() -> None:
    found = cluster(heaps([0.0, 5.0, 9.0], [4, 9, 6]), rng())
    assert found.chosen == 3
    assert found.labels.tolist() == [2] * 4 + [0] * 9 + [1] * 6
    assert found.k == tuple(range(2, 19))
    assert found.k[int(np.argmax(found.score))] == 3


def test_of_equally_large_clusters_the_densest_comes_first() -> None:
    points = np.array([[0.0], [1.0], [10.0], [10.1], [20.0]])
    assert largest_first(np.array([0, 0, 1, 1, 2]), points).tolist() == [1, 1, 0, 0, 2]


def test_equal_rows_count_as_one_point_of_the_bound() -> None:
    two_kinds = np.repeat(np.eye(2), [5, 7], axis=0)
    found = cluster(two_kinds, rng())
    assert (found.chosen, found.k, found.score) == (2, (2,), (1.0,))
    assert found.labels.tolist() == [1] * 5 + [0] * 7


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (3, 2)])
def test_very_small_fleets(n: int, k: int) -> None:
    assert cluster(np.arange(float(n))[:, None] ** 2, rng()).chosen == k


def test_clients_that_all_look_alike_are_one_cluster() -> None:
    assert cluster(np.full((8, 4), 0.25), rng()).labels.tolist() == [0] * 8


def test_a_fixed_number_of_clusters() -> None:
    points = heaps([0.0, 5.0, 9.0], [4, 9, 6])
    assert cluster(points, rng(), clusters=2).chosen == 2
    assert cluster(points[:2], rng(), clusters=9).chosen == 2, "never more than distinct rows"
    with pytest.raises(UserError, match="clusters is 0"):
        cluster(points, rng(), clusters=0)


def test_of_equally_good_k_the_smallest_counts() -> None:
    assert silhouette.best({4: (0.5, np.zeros(1)), 3: (0.5 - 1e-15, np.zeros(1)), 2: (0.4, np.zeros(1))}) == 3


@pytest.mark.parametrize("heap_count", [30, 120])
def test_the_coarse_sweep_finds_what_the_whole_one_finds(
    heap_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = heaps([float(i * i) for i in range(heap_count)], [3] * heap_count, width=0.001)
    monkeypatch.setattr(silhouette, "EVERY_K", 20)
    coarse = cluster(points, rng())
    assert coarse.chosen == heap_count
    assert len(coarse.k) < 0.7 * len(points)


def test_in_a_large_fleet_k_is_chosen_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silhouette, "SAMPLE", 40)
    found = cluster(heaps([0.0, 5.0, 9.0], [40, 90, 60]), rng())
    assert np.bincount(found.labels).tolist() == [90, 60, 40]
    assert max(found.k) <= 39
