"""Clusters of clients with like label distributions, as many as asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from covey.core import Round
from covey.errors import UserError
from covey.group.dbscan_bisection import agglomerative, clusters_by_bisection
from covey.group.distances import hellinger
from covey.group.figures import note_groups
from covey.steps.labels import CountLabels

Linkage = Literal["dbscan", "agglomerative"]


@dataclass(frozen=True, kw_only=True)
class LabelClusters:
    """Everybody tells its label counts once; the first to come are clustered by Hellinger distance.

    Later ones join the cluster of the client they are most like, so that the number of clusters stays. Counts
    are kept in `memory["labels"]`, in the order of `memory["labelled"]`.
    """

    clusters: int
    by: Linkage = "dbscan"
    min_samples: int = 3

    def __post_init__(self) -> None:
        if self.clusters < 1:
            raise UserError(f"clusters is {self.clusters}; it must be at least 1")
        if self.by not in ("dbscan", "agglomerative"):
            raise UserError(f"cluster_by is {self.by!r}; allowed: dbscan, agglomerative")

    def __call__(self, now: Round) -> dict[int, int]:
        unknown = [i for i in now.here if i not in now.groups]
        replies = now.ask(CountLabels(), unknown) if unknown else []
        if not replies:
            return now.groups
        told = np.array([reply.stats["labels"] for reply in replies], dtype=np.float64)
        shares = told / told.sum(axis=1, keepdims=True)
        if not now.groups:
            labels, counts, ids = self._first(now, shares), told, []
        else:
            counts, ids = now.memory["labels"], now.memory["labelled"].tolist()
            known = counts / counts.sum(axis=1, keepdims=True)
            nearest = hellinger(shares, known).argmin(axis=1)
            labels = np.array([now.groups[ids[k]] for k in nearest.tolist()])
            counts = np.concatenate([counts, told])
        now.memory["labels"] = counts
        now.memory["labelled"] = np.array([*ids, *(reply.id for reply in replies)], dtype=np.int64)
        groups = now.groups | {r.id: int(label) for r, label in zip(replies, labels, strict=True)}
        everybody = counts / counts.sum(axis=1, keepdims=True)
        by_client = dict(zip(now.memory["labelled"].tolist(), everybody, strict=True))
        note_groups(now, by_client, groups, shares=by_client)
        return groups

    def _first(self, now: Round, shares: NDArray[np.float64]) -> NDArray[np.int64]:
        distances = hellinger(shares, shares)
        clusters = min(self.clusters, len(shares))
        if self.by == "agglomerative" and len(shares) > 1:
            labels, how, eps = agglomerative(distances, clusters=clusters), "agglomerative", 0.0
        else:
            labels, how, eps = clusters_by_bisection(
                distances, clusters=clusters, min_samples=self.min_samples
            )
        sizes = sorted(np.bincount(labels).tolist(), reverse=True)
        now.notes["clusters"] = {"found by": how, "eps": eps, "sizes": sizes}
        return labels
