"""K-means whose number of clusters is the one with the best mean silhouette (CAFA, eq. 3-6)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from covey.arrays import Array, Integers
from covey.parts.group.kmeans import kmeans
from covey.settings import Count, validated

# up to here every k is tried; above, all small ones, a grid, and what lies around the grid's best
EVERY_K = 200
SMALL_K = 50
GRID = 1.1  # ratio of neighbours on the grid
SAMPLE = 2000  # with more points than this, k is chosen on a sample of them
TIE = 1e-12
DIGITS = 12  # rows that agree in this many decimals are the same row


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusters:
    """Which cluster each point is in, and the mean silhouette of every k that was tried.

    Clusters are numbered by size, the largest is 0; of equally large ones the densest comes first.
    """

    labels: Integers
    k: tuple[int, ...] = ()
    score: tuple[float, ...] = ()

    @property
    def chosen(self) -> int:
        return int(self.labels.max()) + 1


@validated
def cluster(vectors: Array, rng: np.random.Generator, *, clusters: Count | None = None) -> Clusters:
    """Clusters of the rows of `vectors` by Euclidean K-means with k = argmax of the mean silhouette over 2..n-1.

    There are never more clusters than distinct rows, and 1 when n < 3 or all rows are equal; of equally good k the
    smallest counts. `clusters` fixes k instead.
    """
    vectors = vectors.round(DIGITS)
    distinct = len(np.unique(vectors, axis=0))
    tried: tuple[int, ...] = ()
    score: tuple[float, ...] = ()
    if clusters is not None:
        chosen = min(clusters, distinct)
    elif len(vectors) < 3 or distinct == 1:
        chosen = 1
    else:
        few = vectors if len(vectors) <= SAMPLE else vectors[np.sort(rng.choice(len(vectors), SAMPLE, False))]
        tried, score, labels = sweep(few, rng)
        if few is vectors:
            return Clusters(labels=largest_first(labels, vectors), k=tried, score=score)
        chosen = int(labels.max()) + 1
    labels = of_rows(vectors, rng)(chosen)
    return Clusters(labels=largest_first(labels, vectors), k=tried, score=score)


def sweep(vectors: Array, rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[float, ...], Integers]:
    """The k that were tried, their mean silhouettes, and the labels of the best."""
    labels_of = of_rows(vectors, rng)
    apart = distances(vectors)
    found: dict[int, tuple[float, Integers]] = {}

    def attempt(numbers: Iterable[int]) -> None:
        for k in numbers:
            if k not in found:
                labels = labels_of(k)
                if labels.max() + 1 == k:
                    found[k] = (mean_silhouette(apart, labels), labels)

    grid = to_try(min(len(vectors) - 1, len(np.unique(vectors, axis=0))))
    attempt(grid)
    top = best(found)
    attempt(
        range(max([k for k in grid if k < top], default=2), min([k for k in grid if k > top], default=top))
    )
    tried = tuple(sorted(found))
    return tried, tuple(found[k][0] for k in tried), found[best(found)][1]


def to_try(most: int) -> list[int]:
    """The k to try first: all from 2 to `most` when they are few, else the small ones and a growing grid."""
    if most <= max(EVERY_K, SMALL_K):
        return list(range(2, most + 1))
    steps = int(np.log(most / SMALL_K) / np.log(GRID)) + 2
    return [*range(2, SMALL_K), *(int(k) for k in np.unique(np.geomspace(SMALL_K, most, steps).round()))]


def best(found: dict[int, tuple[float, Integers]]) -> int:
    """The smallest k with the highest score."""
    top = max(score for score, _ in found.values())
    return min(k for k, (score, _) in found.items() if score >= top - TIE)


def of_rows(vectors: Array, rng: np.random.Generator) -> Callable[[int], Integers]:
    """K-means of the vectors for any k; equal rows are one point that counts as often."""
    rows, place, counts = np.unique(vectors, axis=0, return_inverse=True, return_counts=True)
    return lambda k: kmeans(rows, counts.astype(np.float64), k, rng)[place]


def distances(vectors: Array) -> Array:
    """Euclidean distances between all rows."""
    from scipy.spatial.distance import cdist

    apart: Array = cdist(vectors, vectors)
    return apart


def mean_silhouette(apart: Array, labels: Integers) -> float:
    """Mean of s = (b - a) / max(a, b) over all points, from their distances (eq. 3-4); a single point counts 0."""
    sizes = np.bincount(labels)
    if len(sizes) < 2:
        return 0.0
    order = np.argsort(labels, kind="stable")
    sums = np.add.reduceat(apart[order], np.cumsum(sizes) - sizes, axis=0)  # [cluster, point]
    points = np.arange(len(labels))
    inside = sums[labels, points] / np.maximum(sizes[labels] - 1, 1)
    sums /= sizes[:, None]
    sums[labels, points] = np.inf
    nearest = sums.min(axis=0)
    larger = np.maximum(inside, nearest)
    scores = np.divide(nearest - inside, larger, out=np.zeros_like(larger), where=larger > 0)
    return float(np.where(sizes[labels] > 1, scores, 0.0).mean())


def largest_first(labels: Integers, vectors: Array) -> Integers:
    """The same clusters numbered by size; ties: smaller mean distance inside, then the earliest member (eq. 7)."""
    sizes = np.bincount(labels)
    tied = {int(size) for size in sizes if (sizes == size).sum() > 1 and size > 1}
    inside = [
        float(distances(vectors[labels == c]).mean()) if size in tied else 0.0 for c, size in enumerate(sizes)
    ]
    first = [int(np.argmax(labels == c)) for c in range(len(sizes))]
    order = sorted(range(len(sizes)), key=lambda c: (-sizes[c], inside[c], first[c]))
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[order] = np.arange(len(sizes))
    return rank[labels]
