"""Local test data that follow each client's own training mix."""

from __future__ import annotations

import numpy as np

from covey.data.partitions.cutting import Floats, Parts, deal
from covey.data.types import Indices


def from_pool(parts: Parts, strata: Indices, test: Indices, rng: np.random.Generator) -> tuple[Parts, Parts]:
    """Give every client test samples from the global test set in its own training mix; no sample twice.

    `strata` holds the stratum (label, or label and domain) of every sample. Client i gets r * n_ic test
    samples of stratum c, n_ic its training samples there, with one rate r for all: the largest that no
    stratum's pool is too small for (strata without any test sample cannot be tested and are left out).
    Fractions are rounded up or down at random with the right expectation. A client left with nothing takes
    one sample, of its most frequent stratum possible, from a client that has two or more; failing that, one
    of its own training samples, if it has two.
    """
    _, strata = np.unique(strata, return_inverse=True)
    kinds = int(strata.max()) + 1
    held = np.stack([np.bincount(strata[part], minlength=kinds) for part in parts])
    pool = np.bincount(strata[test], minlength=kinds)
    usable = (held.sum(axis=0) > 0) & (pool > 0)
    if not usable.any():
        return hold_out(parts, strata, 1e-9, rng)
    rate = (pool[usable] / held.sum(axis=0)[usable]).min()
    counts = _round_at_random(held * (rate * usable), pool, rng)
    _leave_nobody_out(counts, held, pool)
    places = deal(strata[test], counts[:, : strata[test].max() + 1], rng)
    tests = [test[place] for place in places]
    for client in np.flatnonzero(counts.sum(axis=1) == 0).tolist():
        if len(parts[client]) > 1:
            parts, tests[client] = _with(parts, client, parts[client][1:]), parts[client][:1]
    return parts, tests


def hold_out(parts: Parts, strata: Indices, fraction: float, rng: np.random.Generator) -> tuple[Parts, Parts]:
    """Split each client's own samples: a share `fraction` of every stratum becomes local test data.

    The number of test samples is round(fraction * n), at least 1 and at most n - 1 (a client with a single
    sample has no test data).
    """
    kept, tests = [], []
    for part in parts:
        wanted = min(max(round(fraction * len(part)), 1), len(part) - 1)
        order = rng.permutation(part)
        order = order[np.argsort(strata[order], kind="stable")]
        # Every n/wanted-th sample in the order of the strata: each stratum gives its share, rounded.
        start = rng.random()
        chosen = ((np.arange(wanted) + start) * len(part) / max(wanted, 1)).astype(np.int64)
        is_test = np.zeros(len(part), dtype=bool)
        is_test[chosen] = True
        kept.append(rng.permutation(order[~is_test]))
        tests.append(rng.permutation(order[is_test]))
    return kept, tests


def _with(parts: Parts, place: int, part: Indices) -> Parts:
    return [*parts[:place], part, *parts[place + 1 :]]


def _round_at_random(quotas: Floats, pool: Indices, rng: np.random.Generator) -> Indices:
    """Round quotas up or down, right on average, inside the pool (systematic sampling)."""
    clients, kinds = quotas.shape
    counts = np.zeros((clients, kinds), dtype=np.int64)
    for column in range(kinds):
        order = rng.permutation(clients)
        ends = np.floor(np.cumsum(quotas[order, column]) + rng.random()).astype(np.int64)
        counts[order, column] = np.diff(np.minimum(ends, pool[column]), prepend=0)
    return counts


def _leave_nobody_out(counts: Indices, held: Indices, pool: Indices) -> None:
    """Give clients without test data one sample: an unused one, else one of the client with most of them."""
    free = pool - counts.sum(axis=0)
    sizes = counts.sum(axis=1)
    for client in np.flatnonzero(sizes == 0):
        for stratum in np.argsort(-held[client], kind="stable"):
            if held[client, stratum] == 0:
                break
            if free[stratum] > 0:
                free[stratum] -= 1
            else:
                giver = int(np.argmax(np.where(sizes > 1, counts[:, stratum], 0)))
                if sizes[giver] < 2 or counts[giver, stratum] == 0:
                    continue
                counts[giver, stratum] -= 1
                sizes[giver] -= 1
            counts[client, stratum] += 1
            sizes[client] += 1
            break
