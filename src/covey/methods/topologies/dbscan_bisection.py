"""Exactly so many clusters: DBSCAN with its radius found by bisection, agglomerative where no radius gives them."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Labels
from covey.errors import UserError
from covey.parts.group.density import Density, numbered_from_zero

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
