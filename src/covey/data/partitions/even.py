"""Homogeneous clients, of equal or of unequal size."""

from collections.abc import Sized

import numpy as np

from covey.data.partitions.cutting import DealtOut, Parts, check_enough, equal_sizes
from covey.data.pieces import Pieces
from covey.settings.ranges import Count, Positive
from covey.settings.registry import register


@register("partition", "iid")
def iid(samples: Sized, *, clients: Count, rng: np.random.Generator) -> Parts:
    """Permute all samples and cut equal slices; the remainder goes one each to the first clients.

    The reference in which all clients are homogeneous, up to chance.
    """
    check_enough(samples=len(samples), clients=clients)
    sizes = equal_sizes(len(samples), clients)
    parts = Pieces(rng.permutation(len(samples)), np.cumsum(sizes))
    return DealtOut(parts, truth=np.zeros(clients, dtype=np.int64))


@register("partition", "quantity")
def quantity(samples: Sized, *, clients: Count, rng: np.random.Generator, alpha: Positive = 0.5) -> Parts:
    """Clients with the same label mix and very different numbers of samples: shares from Dir(alpha), at least one each.

    Args:
        alpha: small: few clients have nearly everything; large: all have about as much.
    """
    check_enough(samples=len(samples), clients=clients)
    shares = rng.dirichlet(np.full(clients, alpha))
    sizes = 1 + np.floor(shares * (len(samples) - clients)).astype(np.int64)
    sizes[np.argsort(-shares)[: len(samples) - int(sizes.sum())]] += 1
    parts = Pieces(rng.permutation(len(samples))[: int(sizes.sum())], np.cumsum(sizes))
    return DealtOut(parts, truth=np.zeros(clients, dtype=np.int64))
