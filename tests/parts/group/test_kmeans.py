"""K-means from many starts: a hand-worked optimum, weights, emptied clusters, and no worse than scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from covey.parts.group import kmeans as many
from covey.parts.group.kmeans import kmeans

Array = np.ndarray


def inertia(points: Array, weights: Array, labels: Array) -> float:
    whole = 0.0
    for c in np.unique(labels):
        part, mass = points[labels == c], weights[labels == c]
        whole += float((mass[:, None] * (part - np.average(part, axis=0, weights=mass)) ** 2).sum())
    return whole


def mixes(n: int, seed: int) -> Array:
    """Label shares of clients with 2 to 4 of 10 classes."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((n, 10))
    for row in rows:
        held = rng.choice(10, rng.integers(2, 5), replace=False)
        row[held] = rng.dirichlet(np.full(len(held), 5.0))
    return rows


def groups(labels: Array) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == c).tolist()) for c in np.unique(labels)}


def test_weights_move_the_border() -> None:
    """Points 0, 3, 5: {0}, {3, 5} costs 1 x 10 / 11 x 4 = 3.64 and {0, 3}, {5} 1 x 1 / 2 x 9 = 4.5; where 0 counts a
    tenth, the second costs 0.1 x 1 / 1.1 x 9 = 0.82."""
    points = np.array([[0.0], [3.0], [5.0]])
    found = kmeans(points, np.array([1.0, 1.0, 10.0]), 2, np.random.default_rng(0))
    assert groups(found) == {frozenset({0}), frozenset({1, 2})}
    found = kmeans(points, np.array([0.1, 1.0, 10.0]), 2, np.random.default_rng(0))
    assert groups(found) == {frozenset({0, 1}), frozenset({2})}


def test_a_move_that_lloyds_steps_miss() -> None:
    """{0}, {2.1, 4, 5, 5}: 2.1 is nearer to the mean 4.025 (1.925) than to 0, so Lloyd leaves it. Out of its four it
    saves 4 / 3 x 1.925^2 = 4.94, and with 0 it costs 1 / 2 x 2.1^2 = 2.21: it moves, and 2.205 + 2 / 3 are left."""
    points = np.array([[0.0], [2.1], [4.0], [5.0], [5.0]])
    start = np.array([0, 1, 1, 1, 1])
    stays, _ = many._lloyd(points, np.ones(5), np.array([[[0.0], [4.025]]]))
    assert stays[0].tolist() == start.tolist()
    labels, left = many._moved(points, np.ones(5), start, 2)
    assert labels.tolist() == [0, 0, 1, 1, 1]
    assert left == pytest.approx(2.205 + 2 / 3)


@pytest.mark.parametrize("seed", range(4))
def test_no_worse_than_thirty_restarts_of_scikit_learns(seed: int) -> None:
    points, weights = mixes(24, seed), np.ones(24)
    for k in (2, 5, 9, 14):
        ours = inertia(points, weights, kmeans(points, weights, k, np.random.default_rng(seed)))
        theirs = KMeans(k, n_init=30, random_state=seed).fit(points).inertia_
        assert ours <= theirs * (1 + 1e-9)


def test_an_emptied_cluster_takes_the_farthest_point() -> None:
    """Both centres start at 0 and so one of them is empty: it goes to 9, and the inertia is that of {0, 1}, {9}."""
    points = np.array([[0.0], [1.0], [9.0]])
    labels, found = many._lloyd(points, np.ones(3), np.zeros((1, 2, 1)))
    assert found.tolist() == [0.5]
    assert len({labels[0, 0], labels[0, 2]}) == 2


def test_large_tables_go_to_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.concatenate([np.zeros((5, 2)), np.ones((5, 2))]) + 0.01 * mixes(10, 0)[:, :2]
    monkeypatch.setattr(many, "LARGE", 1)
    assert kmeans(points, np.ones(10), 2, np.random.default_rng(0)).tolist() in (
        [0] * 5 + [1] * 5,
        [1] * 5 + [0] * 5,
    )
