"""Clusters of clients with similar label distributions, as many as asked for."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array, Labels
from covey.core import ANY_GROUPS, GROUPS, Key, Round, Shows, part
from covey.errors import UserError
from covey.parts.ask_once import Heard, answers, ask_once, grouped_once
from covey.parts.group.density import Density, numbered_from_zero
from covey.parts.group.distances import hellinger
from covey.parts.group.figures import note_groups
from covey.parts.steps.labels import CountLabels
from covey.parts.steps.size import SIZES
from covey.settings import Count

Linkage = Literal["dbscan", "agglomerative"]

COUNTS: Key[dict[int, Array]] = Key("label counts")

MOST = 4000  # clients that are compared pairwise (128 MB); of more, evenly chosen ones


@part("group", "label-clusters", gives=(GROUPS, SIZES))
class LabelClusters:
    """Clusters of similar labels, as many as asked for; everybody tells its label counts once.

    The first to come are clustered by Hellinger distance, at most 4,000 of them, evenly chosen by their numbers.
    All others join the cluster of the client they are most like, so that the number of clusters stays. What they told
    says how many samples they hold, too.
    """

    clusters: Count = 10
    by: Linkage = "dbscan"
    min_samples: Count = 3

    shows: ClassVar[Shows] = Shows(what="exact counts of every client's labels", instead=ANY_GROUPS)

    def __call__(self, now: Round) -> dict[int, int]:
        ask = answers(now, CountLabels(), lambda reply: np.asarray(reply.stats["labels"], np.float64))
        heard = ask_once(now, COUNTS, ask)
        groups = grouped_once(
            now,
            heard,
            first=lambda counts: self._first(now, counts),
            place=lambda heard: {i: now.groups[like] for i, like in _joined(heard).items()},
        )
        if heard.news:
            told = {i: int(counts.sum()) for i, counts in heard.news.items()}
            SIZES.keep(now.memory, SIZES.get(now.memory, {}) | told)
            shares = {i: counts / counts.sum() for i, counts in heard.known.items()}
            note_groups(now, shares, groups, shares=shares)
        return groups

    def _first(self, now: Round, counts: Mapping[int, Array]) -> dict[int, int]:
        """Everybody's cluster, of those who told first."""
        told = {i: counts[i] for i in list(counts)[:: -(-len(counts) // MOST)]}
        shares = _shares(told.values())
        distances = hellinger(shares, shares)
        clusters = min(self.clusters, len(shares))
        if self.by == "agglomerative" and len(shares) > 1:
            labels, how, eps = agglomerative(distances, clusters=clusters), "agglomerative", 0.0
        else:
            labels, how, eps = clusters_by_bisection(
                distances, clusters=clusters, min_samples=self.min_samples
            )
        group_of = dict(zip(told, labels.tolist(), strict=True))
        others = {i: table for i, table in counts.items() if i not in told}
        found = group_of | {i: group_of[like] for i, like in _nearest(told, others).items()}
        sizes = sorted(np.bincount(list(found.values())).tolist(), reverse=True)
        now.notes["clusters"] = {"found by": how, "eps": eps, "sizes": sizes}
        if others:
            now.notes["clusters"]["compared each with each"] = len(told)
        return found


def _joined(heard: Heard[Array]) -> dict[int, int]:
    """For each unseen client, the client of those known before that it is most like."""
    return _nearest({i: told for i, told in heard.known.items() if i not in heard.news}, heard.news)


def _nearest(known: Mapping[int, Array], others: Mapping[int, Array]) -> dict[int, int]:
    """For each of the others the known client whose labels are most like its own."""
    if not others:
        return {}
    names, shares, table = list(known), _shares(known.values()), _shares(others.values())
    few = max(1, MOST**2 // len(shares))  # at once
    nearest = [hellinger(table[k : k + few], shares).argmin(axis=1) for k in range(0, len(table), few)]
    return {i: names[place] for i, place in zip(others, np.concatenate(nearest).tolist(), strict=True)}


def _shares(counts: Iterable[Array]) -> Array:
    table = np.stack(list(counts))
    return np.asarray(table / table.sum(axis=1, keepdims=True))


FoundBy = Literal["dbscan", "agglomerative"]


def clusters_by_bisection(
    distances: NDArray[np.float64], *, clusters: int, min_samples: int = 3
) -> tuple[Labels, FoundBy, float]:
    """Labels 0..clusters-1 for a table of distances, how they were found, and the radius (DBSCAN's eps).

    A client that belongs nowhere is a cluster of its own, so the number of clusters never grows with eps and
    bisection over the distances that occur finds the smallest eps with at most `clusters` of them. Where that
    number is jumped over (equal distances), average linkage makes the cut; eps is then 0.
    """
    nodes = len(distances)
    if not 1 <= clusters <= nodes:
        raise UserError(f"clusters is {clusters}; allowed: from 1 to the number of clients, {nodes}")
    if clusters == nodes:
        return np.arange(nodes), "dbscan", 0.0
    # A radius just above a distance that occurs; DBSCAN itself needs one above 0.
    radii = np.nextafter(np.unique(distances), np.inf)
    low, high = 0, len(radii) - 1
    while low < high:
        middle = (low + high) // 2
        if _count(_dbscan(distances, radii[middle], min_samples)) <= clusters:
            high = middle
        else:
            low = middle + 1
    labels = _dbscan(distances, radii[low], min_samples)
    if _count(labels) == clusters:
        return labels, "dbscan", float(radii[low])
    return agglomerative(distances, clusters=clusters), "agglomerative", 0.0


def _dbscan(distances: NDArray[np.float64], eps: float, min_samples: int) -> Labels:
    return Density(algorithm="dbscan", eps=float(eps), min_samples=min_samples)(
        distances, metric="precomputed"
    )


def _count(labels: Labels) -> int:
    return int(labels.max()) + 1


def agglomerative(distances: NDArray[np.float64], *, clusters: int) -> Labels:
    """Average linkage, cut where `clusters` remain: more even clusters than density gives on spread-out data."""
    from sklearn.cluster import AgglomerativeClustering

    model = AgglomerativeClustering(n_clusters=clusters, metric="precomputed", linkage="average")
    return numbered_from_zero(np.asarray(model.fit_predict(distances), dtype=np.int64))
