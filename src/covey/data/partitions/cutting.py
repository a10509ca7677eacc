"""What the partitions share: checks, rounding, and drawing samples by a table of counts."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias, overload

import numpy as np

from covey.arrays import Array
from covey.data.pieces import Pieces
from covey.data.types import Indices
from covey.errors import UserError

Parts: TypeAlias = Sequence[Indices]

# Where a client's local test data come from. mix: the global test set, in the client's label mix. mix-in-group: the
# same, of its natural group only. group: all of its natural group. own: a share of the client's own samples. leaky: the
# same share, which is trained on as well.
TestRule: TypeAlias = Literal["mix", "mix-in-group", "group", "own", "leaky"]


class DealtOut(Sequence[Indices]):
    """The clients' parts; with them, the clients' true clusters (none: not known), the rule for test data, and the
    natural groups that were left out because they have too few samples.

    A partition of your own may return a plain list of parts.
    """

    def __init__(
        self,
        parts: Iterable[Indices],
        *,
        truth: Indices | None = None,
        tests: TestRule = "mix",
        left_out: Sequence[int] = (),
    ) -> None:
        self.parts = Pieces.of(parts)
        self.truth = truth
        self.tests: TestRule = tests
        self.left_out = left_out

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, place: int) -> Indices: ...
    @overload
    def __getitem__(self, place: slice) -> Pieces: ...
    def __getitem__(self, place: int | slice) -> Indices | Pieces:
        return self.parts[place]


def check_enough(*, samples: int, clients: int, minimum: int = 1) -> None:
    """Refuse what no partition can do: fewer samples than the clients must at least have."""
    if clients * minimum > samples:
        most = samples // minimum
        raise UserError(
            f"clients = {clients} with at least {minimum} sample{'s' if minimum > 1 else ''} each need "
            f"{clients * minimum:,} training samples, but there are {samples:,}: "
            f"at most {most:,} client{'s' if most != 1 else ''}"
        )


def check_between(name: str, value: int, low: int, high: int, what: str) -> None:
    """Refuse a whole number outside low..high; `what` says where the upper end comes from."""
    if not low <= value <= high:
        raise UserError(f"{name} is {value}; allowed: from {low} to {high}, {what}")


def counts_of(labels: Indices) -> Indices:
    """How many samples each label has, from label 0 to the largest."""
    return np.bincount(labels)


def equal_sizes(samples: int, clients: int) -> Indices:
    """Equal sizes that use all samples; the remainder goes one each to the first clients."""
    sizes = np.full(clients, samples // clients, dtype=np.int64)
    sizes[: samples % clients] += 1
    return sizes


def cut_by_shares(total: int, shares: Array) -> Indices:
    """Cut `total` at the cumulative shares, rounded down; the parts add up to `total`, a share of 0 gets nothing."""
    ends = np.cumsum(shares)
    # Divided by the last sum, not by the sum of the shares: the end is then exactly 1 in floating point.
    sizes: Indices = np.diff((ends / ends[-1] * total).astype(np.int64), prepend=0)
    return sizes


def largest_size(counts_for: Callable[[int], Indices], totals: Indices) -> int:
    """The largest size whose table of counts asks no label for more samples than it has (0: none does)."""
    low, high = 0, int(totals.sum()) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if (counts_for(middle).sum(axis=0) <= totals).all():
            low = middle
        else:
            high = middle
    return low


def check_nobody_empty(counts: Indices) -> None:
    """Refuse a table of counts that leaves a client without samples."""
    empty = int((counts.sum(axis=1) == 0).sum())
    if empty:
        raise UserError(
            f"clients = {len(counts)}: {empty} of them would get no sample; ask for fewer clients"
        )


def deal(labels: Indices, counts: Indices, rng: np.random.Generator) -> Parts:
    """Give client i counts[i, c] random samples of label c, no sample twice; each part is in random order."""
    shuffled = rng.permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    totals = np.bincount(labels, minlength=counts.shape[1])
    begin = np.cumsum(totals) - totals + np.cumsum(counts, axis=0) - counts
    flat = counts.ravel()
    places = np.repeat(begin.ravel() - (np.cumsum(flat) - flat), flat) + np.arange(flat.sum())
    ends = np.cumsum(counts.sum(axis=1))
    whole = order[places]
    for start, end in pairwise([0, *ends.tolist()]):
        if end - start > 1:  # a shorter part has one order only, for which nothing is drawn
            rng.shuffle(whole[start:end])
    return Pieces(whole, ends)


def deal_shared(labels: Indices, counts: Indices, rng: np.random.Generator) -> Parts:
    """Like `deal`, but every client draws from the whole pool of a label, so that clients share samples."""
    pools = [np.flatnonzero(labels == label) for label in range(counts.shape[1])]
    parts = []
    for row in counts:
        drawn = [rng.choice(pools[label], row[label], replace=False) for label in np.flatnonzero(row)]
        parts.append(rng.permutation(np.concatenate(drawn)))
    return parts


def top_up(counts: Indices, wanted: Array, minimum: int, rng: np.random.Generator) -> Indices:
    """Move samples from large clients to those below the minimum, label by label as they wanted them.

    A short client draws the labels of its missing samples from its own mix `wanted[i]`; each comes from the
    client that can spare most of that label and stays at the minimum. What no client can spare is replaced by the
    label that one of them has most of. The sum of every label stays the same.
    """
    counts = counts.copy()
    sizes = counts.sum(axis=1)
    for short in np.flatnonzero(sizes < minimum).tolist():
        mix = wanted[short] if wanted[short].sum() > 0 else counts.sum(axis=0).astype(np.float64)
        missing = rng.multinomial(minimum - sizes[short], mix / mix.sum())
        for label in np.flatnonzero(missing).tolist():
            _move(counts, sizes, short, label, int(missing[label]), minimum)
        while sizes[short] < minimum:
            label = int(np.argmax(np.minimum(counts, (sizes - minimum)[:, None]).max(axis=0)))
            _move(counts, sizes, short, label, int(minimum - sizes[short]), minimum)
    return counts


def _move(counts: Indices, sizes: Indices, short: int, label: int, amount: int, minimum: int) -> None:
    """Move up to `amount` samples of a label to client `short`, the richest giver first."""
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
