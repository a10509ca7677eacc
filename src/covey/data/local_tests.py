"""Local test data that follow each client's own training data."""

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.data.partitions.cutting import Parts, deal
from covey.data.pieces import Pieces, table_of_counts
from covey.data.together import hold_out_units
from covey.data.types import Indices

OWN_SHARE = 0.2  # of a client's own samples, where no test set has samples for it


def from_pool(
    parts: Parts, strata: Indices, test: Indices, rng: np.random.Generator
) -> tuple[Pieces, Pieces]:
    """Give every client test samples from the global test set in its own training mix; no sample twice.

    `strata` is the stratum (label, or label and domain) of every sample. Client i gets r * n_ic test samples
    of stratum c, n_ic its training samples there, with one rate r for all: the largest for which no stratum
    runs out (a stratum without test samples cannot be tested and is left out). Fractions are rounded up or
    down at random, right on average. A client left with nothing gets one test sample of its most frequent
    stratum possible, spare ones first, else from a client that has two or more; failing that, one of its own
    training samples if it has two. Returns the training and the test parts.
    """
    parts = Pieces.of(parts)
    _, strata = np.unique(strata, return_inverse=True)
    width = int(strata.max()) + 1
    held = table_of_counts(strata, parts, width)
    pool = np.bincount(strata[test], minlength=width)
    totals = held.sum(axis=0)
    usable = (totals > 0) & (pool > 0)
    rate = (pool[usable] / totals[usable]).min() if usable.any() else 0.0
    counts = _round_at_random(held * (rate * usable), pool, rng)
    _leave_nobody_out(counts, held, pool)
    dealt = Pieces.of(deal(strata[test], counts, rng))
    gives_one = (dealt.sizes == 0) & (parts.sizes > 1)
    return _first_to_test(parts, Pieces(test[dealt.whole], dealt.ends), gives_one)


def _first_to_test(train: Pieces, test: Pieces, whose: NDArray[np.bool_]) -> tuple[Pieces, Pieces]:
    """The first training sample of some clients, who have no test sample, becomes their test sample."""
    first = (train.ends - train.sizes)[whose]
    kept = np.delete(train.whole, first)
    ends = test.ends + np.cumsum(whose)
    tested = np.empty(len(test.whole) + len(first), np.int64)
    is_own = np.zeros(len(tested), bool)
    is_own[ends[whose] - 1] = True  # it is the only one of its client
    tested[is_own], tested[~is_own] = train.whole[first], test.whole
    return Pieces(kept, train.ends - np.cumsum(whose)), Pieces(tested, ends)


def from_groups(
    parts: Parts,
    groups: Indices,
    strata: Indices,
    test: Indices,
    rng: np.random.Generator,
    units: Indices | None = None,
) -> tuple[Parts, Parts]:
    """Give every client all global test samples of its own natural group; where there are none, hold some out."""
    order = test[np.argsort(groups[test], kind="stable")]
    ordered = groups[order]
    kept, tests = list(parts), []
    for client, part in enumerate(parts):
        low, high = np.searchsorted(ordered, (groups[part[0]], groups[part[0]] + 1))
        own = order[low:high]
        if not len(own):
            (kept[client],), (own,) = hold_out([part], strata, OWN_SHARE, rng, units)
        tests.append(own)
    return kept, tests


def hold_out(
    parts: Parts,
    strata: Indices,
    fraction: float,
    rng: np.random.Generator,
    units: Indices | None = None,
) -> tuple[Parts, Parts]:
    """Split each client's own samples: a share `fraction` of every stratum becomes local test data.

    That is round(fraction * n) samples, at least 1 and at most n - 1; a client with a single sample has no
    test data. With `units` whole units are held out instead, the same ones at all clients. Returns the training and
    the test parts.
    """
    if units is not None:
        return hold_out_units(parts, units, fraction, rng)
    kept, tests = [], []
    for part in parts:
        wanted = min(max(round(fraction * len(part)), 1), len(part) - 1)
        order = rng.permutation(part)
        order = order[np.argsort(strata[order], kind="stable")]
        # Evenly spaced places in the order of the strata: every stratum gives its share, rounded up or down.
        is_test = np.zeros(len(part), dtype=bool)
        is_test[((np.arange(wanted) + rng.random()) * len(part) / max(wanted, 1)).astype(np.int64)] = True
        kept.append(rng.permutation(order[~is_test]))
        tests.append(rng.permutation(order[is_test]))
    return kept, tests


def _round_at_random(quotas: Array, pool: Indices, rng: np.random.Generator) -> Indices:
    """Round quotas up or down, right on average, inside the pool (systematic sampling)."""
    counts = np.zeros(quotas.shape, dtype=np.int64)
    for column in range(quotas.shape[1]):
        order = rng.permutation(len(quotas))
        ends = np.floor(np.cumsum(quotas[order, column]) + rng.random()).astype(np.int64)
        counts[order, column] = np.diff(np.minimum(ends, pool[column]), prepend=0)
    return counts


def _leave_nobody_out(counts: Indices, held: Indices, pool: Indices) -> None:
    """Give clients without test data one sample: a spare one, else one of the client with most of them."""
    spare = pool - counts.sum(axis=0)
    sizes = counts.sum(axis=1)
    # A stratum that nobody can give from stays so: clients with two or more samples only give.
    empty: set[int] = set()
    for client in np.flatnonzero(sizes == 0).tolist():
        if len(empty) == len(pool):
            return
        for stratum in np.argsort(-held[client], kind="stable")[: (held[client] > 0).sum()].tolist():
            if stratum in empty:
                continue
            if spare[stratum] > 0:
                spare[stratum] -= 1
            else:
                giver = int(np.argmax(np.where(sizes > 1, counts[:, stratum], 0)))
                if sizes[giver] < 2 or counts[giver, stratum] == 0:
                    empty.add(stratum)
                    continue
                counts[giver, stratum] -= 1
                sizes[giver] -= 1
            counts[client, stratum] += 1
            sizes[client] += 1
            break
