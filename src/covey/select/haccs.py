"""HACCS scheduling: which clusters work, by latency and loss, and which of their devices.

Pure functions on arrays; a cluster is a list of positions, latencies are in seconds.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Inside = Literal["fastest", "sampled"]


def cluster_weights(latency: Array, loss: Array, *, rho: float) -> Array:
    """theta (eq. 7) of each cluster from its mean latency and mean loss; not normalised.

    tau_i = 1 - latency_i / max latency (eq. 6); theta_i = rho tau_i + (1 - rho) loss_i / sum of losses. When
    all losses are 0 (or all latencies), that term is the same for all clusters.
    """
    slowest = latency.max()
    tau = 1.0 - latency / slowest if slowest > 0 else np.zeros_like(latency)
    total = loss.sum()
    share = loss / total if total > 0 else np.full_like(loss, 1.0 / len(loss))
    return np.asarray(rho * tau + (1.0 - rho) * share)


def cluster_means(values: Array, clusters: Sequence[Sequence[int]]) -> Array:
    """The mean over each cluster's members."""
    return np.array([values[list(members)].mean() for members in clusters])


def draw(
    clusters: Sequence[Sequence[int]],
    weights: Array,
    latency: Array,
    count: int,
    rng: np.random.Generator,
    *,
    quasi: bool = False,
    inside: Inside = "fastest",
) -> list[int]:
    """Choose `count` devices (or all, if fewer): draw a cluster by weight, take one device of it.

    Clusters are drawn with replacement, devices without (Algorithm 1): the fastest one left, ties by
    position, or with `inside="sampled"` one drawn with probability proportional to 1 / latency (section V-D5). An
    emptied cluster has weight 0; when only weights of 0 are left, non-empty clusters are equally likely.
    `quasi` is the authors' variant: every cluster first gets floor(count * theta_i / sum theta) devices.
    """
    left = [sorted(members, key=lambda i: (latency[i], i)) for members in clusters]
    theta = np.where([len(members) > 0 for members in left], weights, 0.0)
    chosen: list[int] = []
    if quasi and theta.sum() > 0:
        for members, share in zip(left, np.floor(count * theta / theta.sum() + 1e-9), strict=True):
            for _ in range(min(int(share), len(members))):
                chosen.append(_take(members, latency, rng, inside))
    while len(chosen) < count and any(left):
        theta = np.where([len(members) > 0 for members in left], weights, 0.0)
        if theta.sum() <= 0:
            theta = np.array([float(len(members) > 0) for members in left])
        cluster = int(rng.choice(len(left), p=theta / theta.sum()))
        chosen.append(_take(left[cluster], latency, rng, inside))
    return chosen


def _take(members: list[int], latency: Array, rng: np.random.Generator, inside: Inside) -> int:
    if inside == "fastest" or len(members) == 1:
        return members.pop(0)
    speed = 1.0 / np.maximum(latency[members], 1e-12)
    return members.pop(int(rng.choice(len(members), p=speed / speed.sum())))
