"""Clients that look alike."""

from __future__ import annotations

from collections.abc import Sized

import numpy as np

from covey.data.partitions.cutting import Cut, Parts, check_enough, equal_sizes
from covey.ranges import Count
from covey.settings import validated


@validated
def iid(samples: Sized, *, clients: Count, rng: np.random.Generator) -> Parts:
    """Permute all samples and cut equal slices; the remainder goes one each to the first clients.

    The reference in which all clients look alike, up to chance.
    """
    check_enough(samples=len(samples), clients=clients)
    sizes = equal_sizes(len(samples), clients)
    parts = np.split(rng.permutation(len(samples)), np.cumsum(sizes)[:-1])
    return Cut(parts, truth=np.zeros(clients, dtype=np.int64))
