"""A fair schedule of HACCS' clusters: quick rounds most of the time, and everybody's data in the end.

HACCS as published lets the fastest device of a cluster work, so the others' data are never seen, and draws clusters one
by one, so most rounds wait for a slow one. Here a round is chosen as a whole: a deadline, and who fits into it. The
functions work on arrays; a cluster is an array of positions, latencies are in seconds, ages in rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.core.needs import KNOWN_GROUPS, Facts, Key
from covey.core.round import Round
from covey.core.shows import by_losses
from covey.parts.selection.feedback import ByLosses
from covey.parts.selection.haccs import cluster_means, device_losses, with_singles
from covey.settings.ranges import UpTo100
from covey.settings.registry import register
from covey.settings.signatures import validated

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
LAST_CHOSEN: Key[dict[int, int]] = Key("last chosen")  # client -> round


@register("select part", "fair")
@validated
@dataclass(frozen=True, kw_only=True)
class FairSchedule(ByLosses):
    """HACCS' clusters in fair rounds: quick ones most of the time, and everybody's data in the end.

    A round is the deadline T with the largest worth(T)^fullness / T, and the devices that make it up.

    Args:
        power: fair: exponent of a cluster's loss in its worth.
        rotation: fair: weight of a device's own age against its cluster's.
        fullness: fair: how much more a round's worth counts than its time; 1 takes many quick rounds.
    """

    power: UpTo100 = 0.5
    rotation: UpTo100 = 0.5
    fullness: UpTo100 = 1.25

    anyway: ClassVar[Facts] = (KNOWN_GROUPS,)

    shows = property(by_losses)

    def __call__(self, now: Round) -> list[int]:
        here, groups, last = now.here, with_singles(now), LAST_CHOSEN.get(now.memory, {})
        seconds = now.fleet.seconds(self.step, here)
        latency = np.array([seconds[i] for i in here])
        loss = np.array(device_losses(here, groups, self.known(now)))
        names = sorted({groups[i] for i in here})
        clusters = [np.flatnonzero([groups[i] == name for i in here]) for name in names]
        age = np.array([float(now.number - last.get(i, 0)) for i in here])
        weight = cluster_worth(clusters, cluster_means(loss, [c.tolist() for c in clusters]), self.power)
        chosen, deadline = best_round(
            clusters,
            weight,
            age,
            latency,
            count=self.per_round,
            rotation=self.rotation,
            fullness=self.fullness,
        )
        LAST_CHOSEN.keep(now.memory, last | {here[position]: now.number for position in chosen})
        now.notes["schedule"] = {
            "cluster": names,
            "reachable": [len(members) for members in clusters],
            "chosen": [int(np.isin(members, chosen).sum()) for members in clusters],
            "age": [float(age[members].min()) for members in clusters],
            "worth": np.round(weight, 4).tolist(),
            "deadline": [round(deadline, 4)] * len(names),
        }
        return sorted(here[position] for position in chosen)


def cluster_worth(clusters: Sequence[Indices], loss: Array, power: float) -> Array:
    """W_c = n_c loss_c^p: large clusters and those learnt badly count more."""
    sizes = np.array([float(len(members)) for members in clusters])
    return np.asarray(sizes * np.maximum(loss, 1e-12) ** power)


def best_round(
    clusters: Sequence[Indices],
    weight: Array,
    age: Array,
    latency: Array,
    *,
    count: int,
    rotation: UpTo100,
    fullness: UpTo100,
) -> tuple[list[int], float]:
    """Over all deadlines, the round with the largest worth^fullness / time; its devices and how long it takes.

    The worth of a round is the sum of its devices' (see `fill`), with places filled as far as the deadline lets them.
    """
    best: tuple[float, list[int], float] = (-1.0, [], 0.0)
    for deadline in np.unique(latency):
        chosen, worth = fill(clusters, weight, age, latency, deadline, count=count, rotation=rotation)
        time = float(latency[chosen].max())
        value = worth**fullness / max(time, 1e-12)
        if value > best[0] * (1 + 1e-12):
            best = (value, chosen, time)
    return best[1], best[2]


def fill(
    clusters: Sequence[Indices],
    weight: Array,
    age: Array,
    latency: Array,
    deadline: float,
    *,
    count: int,
    rotation: UpTo100,
) -> tuple[list[int], float]:
    """Up to `count` devices that finish by the deadline, the most worthy first, and what they are worth together.

    The (m + 1)-th device d of cluster c is worth W_c age_c / (2m + 1) + rotation W_c age_d / n_c: the first of a
    cluster brings its kind of data (age_c: rounds since any of it worked), each further one less, and any device
    its own (age_d). Divisors 1, 3, 5, ... share the places out in proportion to the clusters' worth (Sainte-Lague).
    """
    options: list[tuple[float, int]] = []
    for members, whole in zip(clusters, weight, strict=True):
        waiting = age[members]
        there = members[latency[members] <= deadline]
        oldest_first = there[np.lexsort((there, latency[there], -age[there]))]
        for taken, position in enumerate(oldest_first):
            kind = whole * waiting.min() / (2 * taken + 1)
            options.append((kind + rotation * whole * age[position] / len(members), int(position)))
    options.sort(key=lambda option: (-option[0], option[1]))
    chosen = options[:count]
    return [position for _, position in chosen], float(sum(worth for worth, _ in chosen))
