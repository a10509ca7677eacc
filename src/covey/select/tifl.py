"""TiFL: tiers of devices of like speed; each round one tier works, inaccurate tiers more often.

Pure functions; the state (tiers, credits, probabilities, accuracies) goes in and comes out.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def make_tiers(latency: Mapping[int, float], count: int) -> list[list[int]]:
    """Sort the clients by latency (ties by id) and cut them into `count` tiers, as equal as can be."""
    order = sorted(latency, key=lambda i: (latency[i], i))
    parts = np.array_split(np.array(order, dtype=np.int64), min(count, len(order)))
    return [[int(i) for i in part] for part in parts]


def nearest_tier(tiers: Sequence[Sequence[int]], latency: Mapping[int, float], newcomer: float) -> int:
    """The tier whose mean latency is nearest to the newcomer's."""
    means = [np.mean([latency[i] for i in tier]) for tier in tiers]
    return int(np.argmin([abs(mean - newcomer) for mean in means]))


def credits_each(rounds: int, tiers: int) -> int:
    """Equal credits: each tier may be chosen ceil(rounds / tiers) times."""
    return math.ceil(rounds / tiers)


def tier_probabilities(accuracy: Array, credits: NDArray[np.int64]) -> Array:
    """Of n tiers with credits, the j-th least accurate (j = 0..) gets (n - j) / (n (n + 1) / 2)."""
    alive = np.flatnonzero(credits > 0)
    probabilities = np.zeros(len(accuracy))
    n = len(alive)
    for rank, tier in enumerate(sorted(alive, key=lambda t: (accuracy[t], t))):
        probabilities[tier] = (n - rank) / (n * (n + 1) / 2)
    return probabilities


def draw_tier(
    probabilities: Array, credits: NDArray[np.int64], reachable: NDArray[np.bool_], rng: np.random.Generator
) -> int:
    """A tier with credits and somebody reachable, by probability; among the rest if all have none."""
    for weights in (probabilities * (credits > 0) * reachable, reachable * (credits > 0), reachable):
        total = float(weights.sum())
        if total > 0:
            return int(rng.choice(len(weights), p=weights / total))
    raise ValueError("no tier has a reachable client")


def stalled(history: Sequence[float], interval: int) -> bool:
    """Whether a tier's accuracy did not improve over the last `interval` rounds."""
    return len(history) > interval and history[-1] <= history[-1 - interval]
