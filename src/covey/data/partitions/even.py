"""Clients that look alike."""

from __future__ import annotations

import numpy as np

from covey.data.partitions.cutting import Cut, Parts, check_enough, equal_sizes
from covey.data.types import Indices


def iid(labels: Indices, *, clients: int, rng: np.random.Generator) -> Parts:
    """Permute all samples and cut equal slices; the remainder goes one each to the first clients.

    The reference in which all clients look alike, up to chance.
    """
    check_enough(samples=len(labels), clients=clients)
    sizes = equal_sizes(len(labels), clients)
    parts = np.split(rng.permutation(len(labels)), np.cumsum(sizes)[:-1])
    return Cut(parts, truth=np.zeros(clients, dtype=np.int64))
