"""What the partitions share: checks, rounding, and dealing a table of counts out as samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from covey.data.types import Indices
from covey.errors import UserError

Floats = NDArray[np.float64]
Parts = list[Indices]


def counts_of(labels: Indices) -> Indices:
    """How many samples each label has, from label 0 to the largest."""
    return np.bincount(labels)


def check_enough(*, samples: int, clients: int, minimum: int = 1) -> None:
    """Refuse what no partition can do: fewer samples than the clients must at least have."""
    if clients < 1:
        raise UserError(f"clients = {clients}: there must be at least 1")
    if minimum < 1:
        raise UserError(f"minimum = {minimum}: every client needs at least 1 sample")
    if clients * minimum > samples:
        raise UserError(
            f"clients = {clients} with at least {minimum} sample{'s' if minimum > 1 else ''} each need "
            f"{clients * minimum:,} samples, but there are {samples:,}: "
            f"at most {samples // minimum:,} clients"
        )


def check_positive(name: str, value: float) -> None:
    """Refuse a setting that has to be a finite number above 0."""
    if not 0 < value < float("inf"):
        raise UserError(f"{name} = {value}: it must be a number above 0")


def equal_sizes(samples: int, clients: int) -> Indices:
    """Equal sizes that use all samples; the remainder goes one each to the first clients."""
    sizes = np.full(clients, samples // clients, dtype=np.int64)
    sizes[: samples % clients] += 1
    return sizes


def cut_by_shares(total: int, shares: Floats) -> Indices:
    """Cut `total` at the cumulative shares, rounded down; the parts always add up to `total`."""
    ends = (np.cumsum(shares) / shares.sum() * total).astype(np.int64)
    ends[-1] = total
    sizes: Indices = np.diff(ends, prepend=0)
    return sizes


def deal(labels: Indices, counts: Indices, rng: np.random.Generator) -> Parts:
    """Give client i counts[i, c] random samples of label c, no sample twice; each part is in random order."""
    shuffled = rng.permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    starts = np.cumsum(counts_of(labels)) - counts_of(labels)
    begin = starts + np.cumsum(counts, axis=0) - counts
    flat = counts.ravel()
    places = np.repeat(begin.ravel() - (np.cumsum(flat) - flat), flat) + np.arange(flat.sum())
    ends = np.cumsum(counts.sum(axis=1))
    return [rng.permutation(part) for part in np.split(order[places], ends[:-1])]


def top_up(counts: Indices, wanted: Floats, minimum: int, rng: np.random.Generator) -> Indices:
    """Move samples from large clients to those below the minimum, label by label as they wanted them.

    A short client draws the labels of its missing samples from its own mix `wanted[i]`; each comes from the
    client that has most of that label among those above the minimum. What nobody can spare is replaced by
    any label that somebody can. The sum of every label stays the same.
    """
    counts = counts.copy()
    sizes = counts.sum(axis=1)
    for short in np.flatnonzero(sizes < minimum):
        mix = wanted[short] / wanted[short].sum()
        missing = rng.multinomial(minimum - sizes[short], mix)
        for label in np.argsort(-missing, kind="stable"):
            _move(counts, sizes, int(short), int(label), int(missing[label]), minimum)
        while sizes[short] < minimum:
            spare = np.where((sizes > minimum)[:, None], counts, 0)
            label = int(np.argmax(spare.max(axis=0)))
            _move(counts, sizes, int(short), label, int(minimum - sizes[short]), minimum)
    return counts


def _move(counts: Indices, sizes: Indices, short: int, label: int, amount: int, minimum: int) -> None:
    while amount > 0:
        spare = np.minimum(counts[:, label], sizes - minimum)
        giver = int(np.argmax(spare))
        taken = min(amount, int(spare[giver]))
        if taken <= 0:
            return
        counts[giver, label] -= taken
        counts[short, label] += taken
        sizes[giver] -= taken
        sizes[short] += taken
        amount -= taken
