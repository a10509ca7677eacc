"""Studies of the topologies paper that need no training."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from covey.methods.topologies.labels import clusters_by_bisection
from covey.parts.mix.estimate import Design, estimate
from covey.runs.config import fleet_of, resolve
from experiments.spec import Findings


def figure2(settings: dict[str, Any], seed: int) -> Findings:
    """The nodes' deviation from the average of all models by communication round, for each backbone."""
    rows, curves = {}, {}
    for backbone in settings["backbones"]:
        design = Design(
            kind="decentralized",
            backbone=backbone,
            nodes=settings["nodes"],
            clusters=settings["nodes"],
            seed=seed,
        )
        found = estimate(design, rounds=settings["rounds"], parameters=1).deviation
        rows[backbone] = {f"round {number}": round(value, 4) for number, value in enumerate(found)}
        curves[backbone] = (list(range(len(found))), list(found))
    return Findings(rows=rows, curves=curves)


def distances(settings: dict[str, Any], seed: int) -> Findings:
    """Clusters by other distances between label distributions than Hellinger's, by the same bisection.

    How alike the clusters are (1: the same) to Hellinger's and to the partition's own, where it has some; how far
    the members' label distributions are from their cluster's (total variation); whether one radius gave them.
    """
    from scipy.spatial.distance import cdist
    from sklearn.metrics import adjusted_rand_score

    fleet = fleet_of(resolve(settings["run"] | {"seed": seed}), None)
    counts, kinds = fleet.data.label_counts(), [share.cluster for share in fleet.data.shares]
    fleet.close()
    shares = counts / counts.sum(axis=1, keepdims=True)
    rows: dict[str, Any] = {}
    hellinger: NDArray[np.int64] | None = None
    metric: Literal["euclidean", "cityblock", "jensenshannon", "cosine"]
    for name, points, metric in (
        ("Hellinger", np.sqrt(shares / 2), "euclidean"),
        ("total variation (earth mover's, labels equally far apart)", shares / 2, "cityblock"),
        ("earth mover's along the labels' order", np.cumsum(shares, axis=1), "cityblock"),
        ("Jensen-Shannon", shares, "jensenshannon"),
        ("Euclidean", shares, "euclidean"),
        ("cosine", shares, "cosine"),
    ):
        table = np.maximum(cdist(points, points, metric), 0.0)
        labels, how, _ = clusters_by_bisection(table, clusters=settings["clusters"])
        hellinger = labels if hellinger is None else hellinger
        centres = np.stack([shares[labels == c].mean(axis=0) for c in labels])
        rows[name] = {
            "agreement with Hellinger": float(adjusted_rand_score(hellinger, labels)),
            "spread inside clusters": round(float(np.abs(shares - centres).sum(axis=1).mean() / 2), 4),
            "largest cluster": int(np.bincount(labels).max()),
            "one radius": float(how == "dbscan"),
        }
        if min(kinds) >= 0:
            rows[name]["agreement with the partition"] = float(adjusted_rand_score(kinds, labels))
    return Findings(rows=rows)
