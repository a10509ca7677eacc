"""Groups by what clients report once: found among the first who do, and later ones join those they are nearest to."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array, Labels
from covey.core import Key, Round
from covey.data.ground_truth import numbered
from covey.parts.ask_once import Ask, Heard, ask_once, grouped_once

Reports = list[NDArray[Any]]
MOST_CLUSTERS = 10  # that are tried where no number is given
LEAST_SILHOUETTE = 0.1  # below it, clients are one group


def cut_tree(distances: Array, *, clusters: int | None = None, threshold: float | None = None) -> Labels:
    """Average linkage on a table of distances: a given number of clusters, cut at a distance, or by the best
    silhouette.

    Where no number is given, one cluster remains unless the best silhouette of 2 to 10 clusters is above 0.1.
    """
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import silhouette_score

    nodes = len(distances)
    if nodes < 2:
        return np.zeros(nodes, np.int64)

    def cut(**how: Any) -> Labels:
        tree = AgglomerativeClustering(metric="precomputed", linkage="average", **how)
        return np.asarray(tree.fit_predict(distances), np.int64)

    if threshold is not None:
        return numbered(cut(n_clusters=None, distance_threshold=threshold))
    if clusters is not None:
        return numbered(cut(n_clusters=min(clusters, nodes)))
    best, labels = LEAST_SILHOUETTE, np.zeros(nodes, np.int64)
    for count in range(2, min(MOST_CLUSTERS, nodes - 1) + 1):
        tried = cut(n_clusters=count)
        score = float(silhouette_score(distances, tried, metric="precomputed"))
        if score > best:
            best, labels = score, numbered(tried)
    return labels


def k_groups(points: Array, k: int, seed: int) -> Labels:
    """K-means from ten starts into `k` groups, or into as many as there are different points."""
    from sklearn.cluster import KMeans

    count = min(k, len(np.unique(points.round(9), axis=0)))
    return numbered(KMeans(count, n_init=10, random_state=seed).fit_predict(points))


def grouped_by_reports(
    now: Round,
    key: Key[dict[int, NDArray[Any]]],
    ask: Ask[NDArray[Any]],
    distances: Callable[[Reports, Reports], Array],
    found: Callable[[Array], Labels],
) -> dict[int, int]:
    """Asks new clients for their report; `found` groups the first by distance, later ones join the nearest group.

    The nearest is the group with the lowest mean distance to its members.
    """

    def first(told: dict[int, NDArray[Any]]) -> dict[int, int]:
        reports = [told[i] for i in sorted(told)]
        return dict(zip(sorted(told), found(distances(reports, reports)).tolist(), strict=True))

    def place(heard: Heard[NDArray[Any]]) -> dict[int, int]:
        members = [i for i in sorted(heard.known) if i in now.groups]
        groups = np.array([now.groups[i] for i in members])
        far = distances([heard.news[i] for i in heard.news], [heard.known[i] for i in members])
        kinds = np.unique(groups)
        means = np.stack([far[:, groups == kind].mean(axis=1) for kind in kinds], axis=1)
        return dict(zip(heard.news, kinds[means.argmin(axis=1)].tolist(), strict=True))

    return grouped_once(now, ask_once(now, key, ask), first=first, place=place)
