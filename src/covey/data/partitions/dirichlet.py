"""Label mixes drawn from a Dirichlet distribution; the definitions are NOT equally hard at equal alpha."""

from __future__ import annotations

import numpy as np

from covey.data.partitions.cutting import (
    Parts,
    check_enough,
    check_positive,
    counts_of,
    cut_by_shares,
    deal,
    top_up,
)
from covey.data.types import Indices


def dir_class(
    labels: Indices, *, clients: int, rng: np.random.Generator, alpha: float = 0.5, minimum: int = 10
) -> Parts:
    """Per class, p ~ Dir(alpha) over the clients; the shuffled class is cut by cumulative p.

    Sizes vary as much as label mixes do. A client below `minimum` samples is topped up to it, in its own
    label mix, with samples of the clients that have most of that label. Smaller alpha: more unlike clients.
    """
    check_enough(samples=len(labels), clients=clients, minimum=minimum)
    check_positive("alpha", alpha)
    totals = counts_of(labels)
    shares = rng.dirichlet(np.full(clients, alpha), size=len(totals))
    counts = np.stack([cut_by_shares(int(n), p) for n, p in zip(totals, shares, strict=True)], axis=1)
    wanted = shares.T * totals + 1e-12
    return deal(labels, top_up(counts, wanted, minimum, rng), rng)
