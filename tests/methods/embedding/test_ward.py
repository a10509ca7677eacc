"""Ward's tree and its best cut, against SciPy, scikit-learn and brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.cluster.hierarchy import linkage
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score, calinski_harabasz_score

from covey.errors import UserError
from covey.methods.embedding.ward import Ward, bayes_cut, best_cut, cut, most_clusters, scores, ward_tree

SIX = np.array([[0.0], [1.0], [10.0], [11.0], [30.0], [32.0]])


def groups(n: int, bits: int, flip: float, k: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % k
    return ((rng.random((k, bits)) < 0.5)[truth] ^ (rng.random((n, bits)) < flip)).astype(np.uint8), truth


def test_the_tree_of_six_points_by_hand() -> None:
    tree = ward_tree(SIX)
    # Costs: {0,1} 1/2, {10,11} 1/2, {30,32} 4/2; {0.5, 10.5} 2*2/4*100; then {5.5, 31} 4*2/6*25.5^2.
    assert tree.costs == pytest.approx([0.5, 0.5, 2.0, 100.0, 4 * 2 / 6 * 25.5**2])
    assert tree.heights == pytest.approx(linkage(SIX, "ward")[:, 2])
    # k = 3: B = 100 + 867, W = 3, CH = (967 / 2) / (3 / 3).
    assert scores(tree)[3] == pytest.approx(967 / 2)
    assert best_cut(tree).labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert best_cut(tree, min_size=3).clusters == 1


@given(
    arrays(
        np.float64, st.tuples(st.integers(3, 40), st.integers(1, 5)), elements=st.floats(-100, 100, width=16)
    )
)
@settings(max_examples=60, deadline=None)
def test_the_merge_heights_are_scipys(points: np.ndarray) -> None:
    distinct = np.unique(points.astype(np.float32), axis=0)
    if len(distinct) < 3:
        return
    rng = np.random.default_rng(0)
    distinct = distinct + rng.normal(size=distinct.shape)  # no ties: the tree is unique
    ours, theirs = ward_tree(distinct).heights, linkage(distinct, "ward")[:, 2]
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


@given(st.integers(0, 10_000), st.integers(8, 60), st.floats(0.02, 0.35), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_the_exact_cut_is_the_best_of_all_cuts_by_brute_force(
    seed: int, n: int, flip: float, min_size: int
) -> None:
    points, _ = groups(n, 40, flip, seed=seed)
    tree = ward_tree(points)
    known = scores(tree)
    brute = {}
    for k in range(2, n):
        labels = cut(tree, k).labels
        assert len(np.unique(labels)) == k
        if known[k] == np.inf:
            return  # no spread left: scikit-learn has no number for that
        expected = calinski_harabasz_score(points, labels)
        assert known[k] == pytest.approx(expected, rel=1e-4)
        if np.bincount(labels).min() >= min_size:
            brute[k] = expected
    assert list(brute) == list(range(2, min(most_clusters(tree, min_size), n - 1) + 1))
    best = best_cut(tree, min_size)
    if brute:
        assert best.score == pytest.approx(max(brute.values()), rel=1e-4)
    else:
        assert best.clusters == 1


@pytest.mark.parametrize(("seed", "flip", "min_size"), [(0, 0.1, 2), (1, 0.3, 2), (2, 0.25, 10), (3, 0.4, 1)])
def test_the_exact_cut_is_never_worse_than_the_optimisers(seed: int, flip: float, min_size: int) -> None:
    points, _ = groups(60, 100, flip, seed=seed)
    tree = ward_tree(points)
    found = bayes_cut(tree, min_size)
    assert found.clusters == 1 or np.bincount(found.labels).min() >= min_size
    assert found.clusters == 1 or best_cut(tree, min_size).score >= found.score


def test_a_threshold_cuts_like_scikit_learn() -> None:
    points, _ = groups(60, 200, 0.1)
    tree = ward_tree(points)
    for k in (2, 4, 9):
        threshold = (tree.heights[60 - k] + tree.heights[60 - k - 1]) / 2
        theirs = AgglomerativeClustering(n_clusters=None, distance_threshold=threshold).fit_predict(points)
        assert len(np.unique(theirs)) == k
        if k <= 4:  # above, ties between Hamming distances leave the choice open
            assert adjusted_rand_score(theirs, cut(tree, k).labels) == 1


def test_a_weight_of_three_is_three_equal_points() -> None:
    rng = np.random.default_rng(3)
    points, weights = rng.normal(size=(12, 3)), rng.integers(1, 5, 12)
    light = ward_tree(points, weights)
    heavy = ward_tree(np.repeat(points, weights, axis=0))
    np.testing.assert_allclose(light.costs, heavy.costs[-11:], rtol=1e-4)
    np.testing.assert_allclose(scores(light)[2:12], scores(heavy)[2:12], rtol=1e-4)
    assert most_clusters(light, 4) == most_clusters(heavy, 4)


@pytest.mark.parametrize("search", ["exact", "bayes"])
@pytest.mark.parametrize("min_size", [2, 10])
def test_four_groups_of_noisy_bits_are_found(search: str, min_size: int) -> None:
    points, truth = groups(100, 200, 0.1)
    found = Ward(search=search, min_size=min_size).fit_predict(points)
    assert adjusted_rand_score(truth, found) == 1


def test_known_noise_is_a_floor_for_the_spread_inside() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 2)) + np.repeat([[0, 0], [30, 0]], 30, axis=0)
    plain, floored = ward_tree(points), ward_tree(points, noise=2.0)
    fine = scores(plain)[2:] > scores(floored)[2:]
    assert fine[10]  # twelve clusters fit the noise: their spread is below what noise must be
    assert best_cut(floored).clusters == 2
    assert scores(floored)[2] == pytest.approx(scores(plain)[2], rel=0.1)


def test_identical_members_give_the_coarsest_perfect_cut() -> None:
    points, truth = groups(40, 200, 0.0)
    assert adjusted_rand_score(truth, Ward().fit_predict(points)) == 1


def test_the_published_objective_minimises_the_index() -> None:
    tree = ward_tree(groups(100, 200, 0.1)[0])
    best, published = best_cut(tree), bayes_cut(tree, published=True)
    assert best.clusters == 4
    assert published.clusters > 2
    assert published.score < best.score


def test_clients_come_in_any_order() -> None:
    points, _ = groups(50, 200, 0.1)
    order = np.random.default_rng(1).permutation(50)
    straight, shuffled = Ward().fit_predict(points), Ward().fit_predict(points[order])
    assert adjusted_rand_score(straight[order], shuffled) == 1


def test_more_points_than_the_tree_takes_are_grouped_first() -> None:
    points, truth = groups(3_000, 200, 0.1, k=6)
    found = Ward(largest=500, centres=60).cut(points, np.random.default_rng(0))
    assert adjusted_rand_score(truth, found.labels) == 1
    assert found.score == pytest.approx(calinski_harabasz_score(points, found.labels), rel=1e-6)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_one_or_two_clients_are_one_cluster(n: int) -> None:
    assert Ward().fit_predict(np.eye(3)[:n]).tolist() == [0] * n


@pytest.mark.parametrize("wrong", [{"search": "best"}, {"min_size": 0}, {"centres": 1}])
def test_wrong_settings_are_named(wrong: dict) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        Ward(**wrong)
