"""How the classes of two clients are arranged: whether they look the same, and under the same names.

Everything is estimated from the means of classes, and corrected for what chance alone would show: the squared length of
a mean of n samples is too large by its variance, w / n, on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.core import stream

MOST_PAIRS = 2000  # of clients that are compared; more do not change a mean
FEWEST = 3  # samples of a class from which its mean is worth comparing


@dataclass(frozen=True, eq=False)
class Described:
    """A client's classes: means and samples of the halves (0, 1) and of all (2), and the variance within classes."""

    classes: NDArray[np.int64]
    means: Array  # [3, classes, size]
    counts: Array  # [3, classes]
    within: Array  # [3]: of one sample, summed over its numbers
    noise: float  # variance of every number that was told

    def uncertain(self, which: NDArray[np.int64], part: int = 2) -> Array:
        """How much the means of these classes are uncertain: variances, summed over their numbers."""
        n = self.counts[part, which]
        told = self.noise * (2 if part == 2 else 1)
        return np.asarray(self.within[part] / n + self.means.shape[2] * told / n**2)


def described(table: Array, noise: float) -> Described:
    """The classes of which both halves have samples (under noise: more than the noise could make up)."""
    parts = np.concatenate([table, table.sum(axis=0, keepdims=True)])
    size = table.shape[2] - 2
    n = parts[:, :, 0]
    surely = 3 * np.sqrt(noise)
    classes = np.flatnonzero((n[:2].min(axis=0) >= max(1.0, surely)) & (n[2] >= max(FEWEST, surely)))
    n = n[:, classes]
    means = parts[:, classes, 1:-1] / n[:, :, None]
    squares = parts[:, classes, -1] / size - n * (means**2).sum(axis=2)
    within = squares.sum(axis=1) / np.maximum((n - 1).sum(axis=1), 1.0)
    return Described(classes.astype(np.int64), means, n, np.maximum(within, 0.0), noise)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of clients that share two classes or more; means over the `k` classes that a pair shares.

    `offset` is the squared distance of the two clients' middles (the mean of their class means). About its middle,
    `length` is the mean squared length of a class mean, `same` the mean inner product of two classes of one name,
    `renamed` that under the renaming which fits best: found on one half of the samples, tried on the other.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    k: Array
    offset: Array
    length: Array
    same: Array
    renamed: Array

    def without(self, clients: NDArray[np.int64]) -> Pairs:
        """The pairs without those of these clients."""
        keep = ~(np.isin(self.first, clients) | np.isin(self.second, clients))
        return Pairs(**{name: values[keep] for name, values in vars(self).items()})

    def apart(self) -> Array:
        """The mean squared distance of two classes of one client."""
        return 2 * self.length * self.k / (self.k - 1)

    def distance(self, inner: Array) -> Array:
        """The mean squared distance of a class of the one from that of the other, by their mean inner product."""
        return self.offset + 2 * (self.length - inner)


def compare(clients: Sequence[Described]) -> Pairs:
    """All pairs that share two classes, or some of them where they are many."""
    found = []
    for i, j in pairs(len(clients)):
        _, mine, theirs = np.intersect1d(
            clients[i].classes, clients[j].classes, assume_unique=True, return_indices=True
        )
        if len(mine) >= 2:
            found.append((i, j, len(mine), *geometry(clients[i], mine, clients[j], theirs)))
    columns = [np.array(column) for column in zip(*found, strict=True)] or [np.zeros(0) for _ in range(7)]
    first, second = (column.astype(np.int64) for column in columns[:2])
    return Pairs(first, second, *(column.astype(np.float64) for column in columns[2:]))


def geometry(
    one: Described, mine: NDArray[np.int64], other: Described, theirs: NDArray[np.int64]
) -> tuple[float, float, float, float]:
    """Offset, length, same, renamed (see `Pairs`) of the classes that two clients share."""
    k = len(mine)
    a, b = one.means[:, mine], other.means[:, theirs]
    chance = (one.uncertain(mine).sum() + other.uncertain(theirs).sum()) / k
    offset = float(((a[2].mean(axis=0) - b[2].mean(axis=0)) ** 2).sum() - chance / k)
    a, b = (means - means.mean(axis=1, keepdims=True) for means in (a, b))
    length = 0.5 * float((a[2] ** 2).sum() + (b[2] ** 2).sum()) / k - 0.5 * chance * (k - 1) / k
    same = float((a[2] * b[2]).sum()) / k
    renamed = sum(
        float((a[tried] * b[tried][assignment(-a[found] @ b[found].T)]).sum()) / (2 * k)
        for found, tried in ((0, 1), (1, 0))
    )
    return offset, length, same, renamed


def told_by_labels(client: Described, which: NDArray[np.int64], part: int = 2) -> float:
    """How much labels say about inputs: the variance between these classes over that within them."""
    means = client.means[part, which]
    between = ((means - means.mean(axis=0)) ** 2).sum() / (len(which) - 1)
    within = client.within[part]
    return float((between - client.uncertain(which, part).mean()) / within) if within > 0 else np.inf


def beside_others(clients: Sequence[Described], part: int = 2) -> Array:
    """Of each client, how much its labels say over what the same classes' labels say at others; nan if unknown."""
    own: list[list[float]] = [[] for _ in clients]
    theirs: list[list[float]] = [[] for _ in clients]
    for i, j in pairs(len(clients)):
        _, mine, its = np.intersect1d(
            clients[i].classes, clients[j].classes, assume_unique=True, return_indices=True
        )
        if len(mine) < 2:
            continue
        told = told_by_labels(clients[i], mine, part), told_by_labels(clients[j], its, part)
        for who, (here, there) in ((i, told), (j, told[::-1])):
            own[who].append(here)
            theirs[who].append(there)
    # the median: up to half of the others may be noisy themselves, or say everything (rows that are alike within
    # classes)
    usual = [float(np.median(values)) if values else np.nan for values in theirs]
    known = [0 < base < np.inf for base in usual]
    return np.array(
        [np.median(told) / base if k else np.nan for told, base, k in zip(own, usual, known, strict=True)]
    )


def assignment(costs: Array) -> NDArray[np.intp]:
    """Which column each row takes, no two the same, so that the sum of the costs is smallest."""
    # what every column costs at least, taken away from all its entries, changes no choice: where the smallest of what
    # is left lie in different columns, they are the best
    for left in (costs, costs - costs.min(axis=0)):
        least: NDArray[np.intp] = left.argmin(axis=1)
        if len(set(least.tolist())) == len(least):
            return least
    # not scipy.optimize, whose import would be a tenth of a run's start; an entry of 0 would count as no edge
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    return min_weight_full_bipartite_matching(csr_array(costs - costs.min() + 1))[1].astype(np.intp)


def pairs(clients: int) -> list[tuple[int, int]]:
    """All pairs of clients, or some drawn at random where they are many."""
    if clients * (clients - 1) // 2 <= MOST_PAIRS:
        return [(i, j) for i in range(clients) for j in range(i)]
    drawn = stream(0, "pairs", clients).integers(0, clients, (2 * MOST_PAIRS, 2))
    return [(int(i), int(j)) for i, j in drawn if i != j][:MOST_PAIRS]
