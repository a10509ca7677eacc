"""K-means from many starts at once: all starts of a small fleet are one table, so that a hundred cost what ten did."""

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array, Integers

RESTARTS = 100  # greedy K-means++ starts for every k of a small fleet; the one with the least inertia counts
ROOM = 200_000  # starts times points times k, which bounds the starts of a larger one
LARGE = 4_000  # points times k from which scikit-learn's K-means takes over, with `FEW_RESTARTS`
FEW_RESTARTS = 5
MOVED = 10  # of the starts, the best ones, that are then improved by moving single points
MOST_STEPS = 300
STILL = 1e-12  # relative fall of the inertia below which a start has settled


def kmeans(points: Array, weights: Array, k: int, rng: np.random.Generator) -> Integers:
    """Cluster of each point, 0..k-1 (fewer where points coincide): the best of the restarts, weighted by `weights`."""
    if len(points) * k > LARGE:
        from sklearn.cluster import KMeans

        model = KMeans(n_clusters=k, n_init=FEW_RESTARTS, random_state=int(rng.integers(2**31)))
        return _numbered(model.fit(points, sample_weight=weights).labels_)
    centres = _plus_plus(points, weights, k, min(RESTARTS, ROOM // (len(points) * k)), rng)
    labels, inertia = _lloyd(points, weights, centres)
    ends = [_moved(points, weights, labels[start], k) for start in inertia.argsort(kind="stable")[:MOVED]]
    return _numbered(min(ends, key=lambda end: end[1])[0])


def _plus_plus(points: Array, weights: Array, k: int, starts: int, rng: np.random.Generator) -> Array:
    """Greedy K-means++ seedings [starts, k, d].

    Candidates for the next centre are drawn with probability weight x squared distance to the nearest centre, and of
    the 2 + ln k candidates the one counts that leaves the least inertia, as in scikit-learn.
    """
    tries = 2 + int(np.log(k))
    table = ((points[:, None] - points) ** 2).sum(axis=2)
    every = np.arange(starts)
    chosen = np.empty((starts, k), dtype=np.int64)
    nearest = np.ones((starts, len(points)))
    for place in range(k):
        mass = np.cumsum(nearest * weights, axis=1)
        at = rng.random((starts, tries)) * mass[:, -1:]
        drawn = np.minimum((mass[:, None] <= at[..., None]).sum(axis=2), len(points) - 1)
        left = table[drawn] if place == 0 else np.minimum(nearest[:, None], table[drawn])
        best = (left @ weights).argmin(axis=1) if place else np.zeros(starts, dtype=np.int64)
        chosen[:, place], nearest = drawn[every, best], left[every, best]
    return np.asarray(points[chosen])


def _lloyd(points: Array, weights: Array, centres: Array) -> tuple[Integers, Array]:
    """Labels [starts, n] and inertia [starts] where Lloyd's steps settle; an empty cluster takes the farthest point."""
    starts, k, d = centres.shape
    size = np.einsum("nd,nd->n", points, points)
    offset = np.arange(starts)[:, None] * k
    before = np.full(starts, np.inf)
    for _ in range(MOST_STEPS):
        apart = size[None, :, None] - 2 * points @ centres.transpose(0, 2, 1)
        apart += np.einsum("skd,skd->sk", centres, centres)[:, None]
        labels = apart.argmin(axis=2)
        near = np.maximum(np.take_along_axis(apart, labels[..., None], axis=2)[..., 0], 0.0)
        inertia = (near * weights).sum(axis=1)
        if (before - inertia <= STILL * np.maximum(inertia, STILL)).all():
            break
        before = inertia
        flat = (labels + offset).ravel()
        mass = np.bincount(flat, np.tile(weights, starts), starts * k)
        sums = [np.bincount(flat, np.tile(weights * points[:, j], starts), starts * k) for j in range(d)]
        means = np.stack(sums, axis=1) / np.maximum(mass, 1e-300)[:, None]
        for place in np.flatnonzero(mass == 0):
            start = place // k
            far = int((near[start] * weights).argmax())
            means[place], near[start, far] = points[far], 0.0
        centres = means.reshape(starts, k, d)
    return labels, inertia


def _moved(points: Array, weights: Array, labels: Integers, k: int) -> tuple[Integers, float]:
    """Labels and inertia after Hartigan's moves: the point whose change of cluster saves most, while one saves.

    Taking a point of weight w out of a cluster of weight m saves m w / (m - w) times its squared distance to the mean,
    putting it into another costs m w / (m + w) times that to the other's: Lloyd's steps miss moves that this sees.
    """
    labels, every = labels.copy(), np.arange(len(points))
    for _ in range(MOST_STEPS):
        member = np.eye(k)[labels] * weights[:, None]
        mass = member.sum(axis=0)
        means = member.T @ points / np.maximum(mass, 1e-300)[:, None]
        apart = ((points[:, None] - means) ** 2).sum(axis=2)
        own, home = apart[every, labels], mass[labels]
        alone = home - weights < 1e-9 * home
        saved = np.where(alone, -np.inf, home * weights / np.where(alone, 1.0, home - weights) * own)
        cost = mass * weights[:, None] / (mass + weights[:, None]) * apart
        cost[every, labels] = np.inf
        gain = saved - cost.min(axis=1)
        best = int(gain.argmax())
        if gain[best] <= STILL * max(float(own @ weights), STILL):
            break
        labels[best] = cost[best].argmin()
    return labels, float(own @ weights)


def _numbered(labels: NDArray[np.integer]) -> Integers:
    return np.asarray(np.unique(labels, return_inverse=True)[1], dtype=np.int64)
