"""HACCS' clusters: groups of clients by density, and unseen clients placed without moving the others."""

import warnings
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np

from covey.arrays import Array, Labels
from covey.data.ground_truth import numbered
from covey.settings import Positive, Range, validated

DensityMetric = Literal["euclidean", "precomputed"]
Algorithm = Literal["optics", "dbscan", "hdbscan"]
Extract = Literal["dbscan", "xi"]


MOST = 10_000  # clients that are clustered one by one; more are grouped first
CENTRES = 2000  # into this many groups
MOST_FELLOWS = 5000  # members of a cluster among which the nearest is searched


@validated
class Density:
    """A density-based clustering; clients that belong nowhere become clusters of their own.

    algorithm: `optics`, `dbscan` or `hdbscan` (scikit-learn's). extract: how OPTICS cuts its reachability: at
    `eps` (`dbscan`) or at steep places (`xi`). min_samples: clients, itself included, of a dense place.
    """

    algorithm: Algorithm = "optics"
    extract: Extract = "dbscan"
    eps: Positive = 0.25
    xi: Annotated[float, Range(above=0, below=1)] = 0.05
    min_samples: Annotated[int, Range(2)] = 2

    @property
    def cut(self) -> float | None:
        """The distance that separates clusters, when the extraction has a fixed one."""
        return self.eps if self.algorithm == "dbscan" or self.extract == "dbscan" else None

    def __call__(self, data: Array, metric: DensityMetric = "euclidean") -> Labels:
        """Cluster points [n, d], or a distance table [n, n] (which HDBSCAN may overwrite): labels 0..k-1."""
        if len(data) <= self.min_samples:
            found = np.full(len(data), -1)
            if len(data) == self.min_samples and self.cut is not None:
                found = self._fit(data, metric)
        else:
            found = (
                self._pregrouped(data)
                if metric == "euclidean" and len(data) > MOST
                else self._fit(data, metric)
            )
        return numbered_from_zero(found)

    def _pregrouped(self, data: Array) -> Labels:
        """Clusters of the means of many small groups, each counting as often as it has members.

        Neighbours of neighbours of 100,000 clients do not fit into memory, nor OPTICS' n^2 steps into a round. A group
        of `min_samples` members is a dense place by itself.
        """
        from sklearn.cluster import DBSCAN, MiniBatchKMeans
        from sklearn.metrics import pairwise_distances_argmin

        some = data[:: -(-len(data) // (100 * CENTRES))]
        centres = (
            MiniBatchKMeans(CENTRES, batch_size=4096, n_init=1, random_state=0).fit(some).cluster_centers_
        )
        _, group = np.unique(pairwise_distances_argmin(data, centres), return_inverse=True)
        counts = np.bincount(group)
        sums = np.zeros((len(counts), data.shape[1]))
        np.add.at(sums, group, data)
        means = sums / counts[:, None]
        if self.cut is not None:
            model = DBSCAN(eps=self.cut, min_samples=self.min_samples)
            found = model.fit(means, sample_weight=counts).labels_
        else:
            found = self._fit(means, "euclidean")
        single = counts[group] < 2
        labels = numbered_from_zero(np.asarray(found, dtype=np.int64))[group]
        return np.where((np.asarray(found)[group] < 0) & single, -1, labels)

    def _fit(self, data: Array, metric: DensityMetric) -> Labels:
        from sklearn import config_context
        from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS

        model: Any
        if self.algorithm == "dbscan":
            model = DBSCAN(eps=self.eps, min_samples=self.min_samples, metric=metric)
        elif self.algorithm == "hdbscan":
            model = HDBSCAN(
                min_cluster_size=self.min_samples, min_samples=self.min_samples, metric=metric, copy=False
            )
        elif self.extract == "xi":
            model = OPTICS(min_samples=self.min_samples, metric=metric, cluster_method="xi", xi=self.xi)
        else:
            # Nothing beyond eps matters to this extraction, and a bounded search is what makes it fast.
            model = OPTICS(
                min_samples=self.min_samples, metric=metric, cluster_method="dbscan", max_eps=self.eps
            )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="All reachability values are inf")
            # xi on clients that are exactly alike
            warnings.filterwarnings("ignore", message="divide by zero")
            # Without this, OPTICS checks the whole table again for every client: n x n x n.
            with config_context(assume_finite=True):
                return np.asarray(model.fit_predict(data), dtype=np.int64)


def numbered_from_zero(found: Labels) -> Labels:
    """Clusters numbered 0.. by their first member; every noise point (-1) is a cluster of its own."""
    return numbered(np.where(found < 0, -1 - np.arange(len(found)), found))


def reaches(labels: Labels, nearest: Array) -> Array:
    """How far each cluster [k] reaches: the largest of its members' distances to their `nearest` fellow [n].

    `nearest` is infinite for a client that is alone; its cluster reaches as far as the middle one of the others.
    """
    reach = np.full(int(labels.max(initial=-1)) + 1, -np.inf)
    together = np.isfinite(nearest)
    np.maximum.at(reach, labels[together], nearest[together])
    known = reach[np.isfinite(reach)]
    reach[~np.isfinite(reach)] = float(np.median(known)) if len(known) else 0.0
    return reach


def nearest_fellow(labels: Labels, table: Callable[[Labels], Array]) -> Array:
    """Distance [n] from each client to the nearest other member of its cluster, infinite if there is none.

    `table` gives the distances among the clients at some positions: one cluster at a time, never all of them.
    """
    nearest = np.full(len(labels), np.inf)
    for cluster in np.unique(labels):
        members = np.flatnonzero(labels == cluster)
        members = members[:: -(-len(members) // MOST_FELLOWS)]
        if len(members) > 1:
            inside = table(members)
            np.fill_diagonal(inside, np.inf)
            nearest[members] = inside.min(axis=1)
    return nearest


def place(table: Array, labels: Labels, reach: Array) -> Labels:
    """Clusters for m unseen clients, one after another; nobody else moves.

    `table` [m, n + m] holds their distances to the n placed clients (`labels`) and to one another. An unseen client
    joins its nearest client's cluster if that cluster's `reach` [k] allows, else it starts a cluster, which
    later ones may join within the middle reach.
    """
    settled = len(labels)
    everyone = np.concatenate([labels, np.full(len(table), -1, dtype=np.int64)])
    limits = list(reach)
    middle = float(np.median(reach)) if len(reach) else 0.0
    for i, row in enumerate(table):
        known = settled + i
        if known:
            closest = int(np.argmin(row[:known]))
            cluster = int(everyone[closest])
            if row[closest] <= limits[cluster]:
                everyone[known] = cluster
                continue
        everyone[known] = len(limits)
        limits.append(middle)
    return everyone[settled:]
