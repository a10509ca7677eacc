"""HACCS scheduling (Wolfrath et al., 2022): which clusters work, by latency and loss, and which of their devices.

The functions work on arrays; a cluster is a list of positions, latencies are in seconds.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from covey.arrays import Array, Integers
from covey.core import KNOWN_GROUPS, Facts, Round, by_losses, part
from covey.parts.selection.feedback import ByLosses
from covey.settings import Share

Draws = Literal["weighted", "quasi"]
Inside = Literal["fastest", "sampled"]
Speed = Literal["mean", "fastest"]


@part("select", "haccs")
class ByCluster(ByLosses):
    """HACCS as published: clusters drawn by latency and loss, and of each its fastest reachable device.

    theta is eq. 7, the draw Algorithm 1.

    Args:
        rho: published: weight of latency against loss.
        speed: published: a cluster's latency is the mean of its devices' (eq. 6), or the fastest one's.
        squared: published: whether losses are squared first, as in the authors' code.
        draws: published: weighted draws clusters at random; quasi first gives each its whole share of places.
        inside: published: in a cluster the fastest device works, or a sampled one.
    """

    rho: Share = 0.5
    speed: Speed = "mean"
    squared: bool = False
    draws: Draws = "weighted"
    inside: Inside = "fastest"

    anyway: ClassVar[Facts] = (KNOWN_GROUPS,)

    shows = property(by_losses)

    def __call__(self, now: Round) -> list[int]:
        here, groups = now.here, with_singles(now)
        seconds = now.fleet.seconds(self.step, here)
        latency = np.array([seconds[i] for i in here])
        loss = np.array(device_losses(here, groups, self.known(now)))
        names, parts = members_of(np.array([groups[i] for i in here], np.int64))
        clusters = [part.tolist() for part in parts]
        waits = cluster_means(latency, clusters) if self.speed == "mean" else cluster_least(latency, clusters)
        theta = cluster_weights(
            waits, cluster_means(loss**2 if self.squared else loss, clusters), rho=self.rho
        )
        now.notes["schedule"] = {
            "cluster": names,
            "reachable": [len(members) for members in clusters],
            "latency": np.round(waits, 4).tolist(),
            "loss": np.round(cluster_means(loss, clusters), 4).tolist(),
            "theta": np.round(theta, 4).tolist(),
        }
        drawn = draw(
            clusters,
            theta,
            latency,
            self.per_round,
            now.stream("select"),
            quasi=self.draws == "quasi",
            inside=self.inside,
        )
        return sorted(here[position] for position in drawn)


def with_singles(now: Round) -> dict[int, int]:
    """The groups, with everybody here who has none as a cluster of its own."""
    first = max(now.groups.values(), default=-1) + 1
    without = [i for i in now.here if i not in now.groups]
    return now.groups | {client: first + place for place, client in enumerate(without)}


def members_of(groups: Integers) -> tuple[list[int], list[Integers]]:
    """The names of the groups in order, and for each the positions of its members."""
    order = np.argsort(groups, kind="stable")
    names, first = np.unique(groups[order], return_index=True)
    return names.tolist(), np.split(order, first[1:])


def device_losses(here: Sequence[int], groups: Mapping[int, int], known: Mapping[int, float]) -> list[float]:
    """A loss for every device: its own, else its cluster's mean, else the highest there is (1 at the start)."""
    by_cluster: dict[int, list[float]] = {}
    for client, loss in known.items():
        by_cluster.setdefault(groups[client], []).append(loss)
    means = {cluster: float(np.mean(losses)) for cluster, losses in by_cluster.items()}
    highest = max(known.values(), default=1.0)
    return [known.get(i, means.get(groups[i], highest)) for i in here]


def cluster_weights(latency: Array, loss: Array, *, rho: float) -> Array:
    """theta (eq. 7) of each cluster from its latency and mean loss; not normalised.

    tau_i = 1 - latency_i / max latency (eq. 6); theta_i = rho tau_i + (1 - rho) loss_i / sum of losses. When
    all losses are 0 (or all latencies), that term is the same for all clusters. Losses of one's own objective may be
    negative; they then count from the lowest.
    """
    loss = loss - min(0.0, float(loss.min()))
    slowest = latency.max()
    tau = 1.0 - latency / slowest if slowest > 0 else np.zeros_like(latency)
    total = loss.sum()
    share = loss / total if total > 0 else np.full_like(loss, 1.0 / len(loss))
    return np.asarray(rho * tau + (1.0 - rho) * share)


def cluster_means(values: Array, clusters: Sequence[Sequence[int]]) -> Array:
    """The mean over each cluster's members."""
    return np.array([values[list(members)].mean() for members in clusters])


def cluster_least(values: Array, clusters: Sequence[Sequence[int]]) -> Array:
    """The least over each cluster's members."""
    return np.array([values[list(members)].min() for members in clusters])


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
