"""Partitions of fleets on which `covey` was once behind (covey/behind)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from covey.data.partitions.cutting import deal


def superclasses(
    labels: np.ndarray, *, clients: int, rng: np.random.Generator, size: int = 60
) -> Sequence[np.ndarray]:
    """Clients of two groups that share no class: the first half of the classes at every second client.

    Args:
        size: samples of a client, as many of each of its classes.
    """
    classes = int(labels.max()) + 1
    counts = np.zeros((clients, classes), dtype=np.int64)
    for client in range(clients):
        own = np.array_split(np.arange(classes), 2)[client % 2]
        counts[client, own] = size // len(own)
    return deal(labels, counts, rng)


def long_tail(
    labels: np.ndarray, *, clients: int, rng: np.random.Generator, least: int = 20, most: int = 3000
) -> Sequence[np.ndarray]:
    """Sizes from `least` to `most` in equal ratios; the same label mix for all.

    Args:
        least: samples of the smallest client.
        most: samples of the largest client.
    """
    sizes = np.geomspace(least, most, clients).round().astype(np.int64)
    return np.split(rng.permutation(len(labels))[: sizes.sum()], np.cumsum(sizes)[:-1])


def one_never_saw(
    labels: np.ndarray, *, clients: int, rng: np.random.Generator, size: int = 60, missing: int = 5
) -> Sequence[np.ndarray]:
    """Equal label mixes, but for client 0, which has none of the last `missing` classes.

    Args:
        size: samples of a client.
        missing: classes that client 0 never saw.
    """
    classes = int(labels.max()) + 1
    counts = np.full((clients, classes), size // classes, dtype=np.int64)
    counts[0] = 0
    counts[0, : classes - missing] = size // (classes - missing)
    return deal(labels, counts, rng)
