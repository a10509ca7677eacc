"""Clients with prescribed label mixes and a common size: majority, m labels, some IID among skewed ones."""

import math

import numpy as np

from covey.arrays import Array
from covey.data.ground_truth import UNKNOWN
from covey.data.partitions.cutting import (
    DealtOut,
    Parts,
    check_between,
    check_enough,
    check_nobody_empty,
    counts_of,
    deal,
    deal_shared,
    largest_size,
)
from covey.data.types import Indices
from covey.errors import UserError
from covey.settings.ranges import Count, Natural, Positive
from covey.settings.registry import register

IID_CLIENTS = 5
EPSILON = 1e-9  # 0.57 * 100 is 56.99999999999999 in binary: rounding down must give 57


@register("partition", "majority")
def majority(
    labels: Indices,
    *,
    clients: Count,
    rng: np.random.Generator,
    shares: tuple[float, ...] = (0.75, 0.12, 0.07, 0.06),
    balanced: bool = False,
    size: Count | None = None,
    published: bool = False,
) -> Parts:
    """One majority label with 75 % of a client's samples, three others with 12, 7 and 6 %.

    HACCS. The majority label is uniform over the labels (`balanced`: label i mod C for client i), the others
    are drawn without repetition; counts are floor(share * B) with B = `size`, or B = u * b, u uniform in
    0.8..0.9, and b the largest that the data allow without giving a sample twice. `published`: B = u *
    (samples of the majority label) and always the first samples of each label, so that clients share most of
    them.

    Args:
        shares: of the majority label and of the others.
        balanced: whether client i has majority label i mod C.
        size: samples of a client; none is the largest that the data allow.
        published: whether clients take the first samples of each label, and so share them.
    """
    check_enough(samples=len(labels), clients=clients)
    _check_shares(shares)
    totals = counts_of(labels)
    present = np.flatnonzero(totals)
    check_between("len(shares)", len(shares), 1, len(present), "the number of classes")
    # A client's labels: a random order of all, the majority label moved to the front.
    order = rng.permuted(np.tile(present, (clients, 1)), axis=1)
    if balanced:
        first = present[np.arange(clients) % len(present)]
        order = np.stack([np.append(f, row[row != f]) for f, row in zip(first, order, strict=True)])
    chosen = order[:, : len(shares)]
    base = rng.uniform(0.8, 0.9, size=clients)
    if published:
        counts = _spread(chosen, shares, base * totals[chosen[:, 0]], len(totals))
        counts = np.minimum(counts, totals)
        check_nobody_empty(counts)
        pools = [np.flatnonzero(labels == label) for label in range(len(totals))]
        parts = (
            rng.permutation(np.concatenate([pools[label][: row[label]] for label in np.flatnonzero(row)]))
            for row in counts
        )
        return DealtOut(parts, truth=counts.argmax(axis=1))
    if size is None:
        b = largest_size(lambda b: _spread(chosen, shares, base * b, len(totals)), totals)
        counts = _spread(chosen, shares, base * b, len(totals))
    else:
        counts = _spread(chosen, shares, np.full(clients, float(size)), len(totals))
        _check_fits(counts, totals, size)
    check_nobody_empty(counts)
    return DealtOut(deal(labels, counts, rng), truth=counts.argmax(axis=1))


@register("partition", "m-labels")
def m_labels(
    labels: Indices,
    *,
    clients: Count,
    rng: np.random.Generator,
    m: Count = 5,
    size: Count | None = None,
    published: bool = False,
) -> Parts:
    """Every client has m random labels with floor(size / m) samples of each; all clients are equally large.

    HACCS ("5 labels"; with m = C the "IID" case). Without `size` it is the largest that the data allow
    without giving a sample twice. `published`: clients draw from the whole pools, so that they share samples;
    the size is then 1,000 by default.

    Args:
        m: labels of a client.
        size: samples of a client; none is the largest that the data allow.
        published: whether clients draw from the whole pools, and so share samples.
    """
    check_enough(samples=len(labels), clients=clients)
    totals = counts_of(labels)
    present = np.flatnonzero(totals)
    check_between("m", m, 1, len(present), "the number of classes")
    chosen = rng.permuted(np.tile(present, (clients, 1)), axis=1)[:, :m]
    uses = _spread(chosen, (1.0,) * m, np.ones(clients), len(totals))
    if published:
        each = (1000 if size is None else size) // m
        if each > totals[present].min():
            raise UserError(
                f"size = {each * m}: {each} samples of each of m = {m} labels, but the scarcest label has "
                f"{totals[present].min()}"
            )
    elif size is None:
        each = int((totals[present] // np.maximum(uses.sum(axis=0), 1)[present]).min())
    else:
        each = size // m
        _check_fits(uses * each, totals, size)
    check_nobody_empty(uses * each)
    return (deal_shared if published else deal)(labels, uses * each, rng)


@register("partition", "iid-of-n")
def iid_of_n(
    labels: Indices,
    *,
    clients: Count,
    rng: np.random.Generator,
    iid_clients: Natural = IID_CLIENTS,
    most_classes: Count = 2,
    alpha: Positive = 0.5,
    published: bool = False,
) -> Parts:
    """The first iid_clients clients are IID; the others have 1..most_classes classes, shares ~ Dir(alpha).

    CAFA (P1): equal sizes; IID clients are slices of one permutation; every other client draws its number of
    classes and the classes uniformly, counts = ceil(share * size), then 1 less of the largest until the size
    fits. The size is the largest, at most floor(n / N), that gives no sample twice. `published`: floor(n /
    N), the last client takes the rest, and the skewed clients draw from the whole pools, so that they share
    samples.

    Args:
        iid_clients: how many clients are IID.
        most_classes: of the other clients.
        alpha: concentration of the Dirichlet distribution; smaller makes clients more heterogeneous.
        published: whether skewed clients draw from the whole pools, and so share samples.
    """
    check_enough(samples=len(labels), clients=clients)
    check_between("iid_clients", iid_clients, 0, clients, "the number of clients")
    totals = counts_of(labels)
    present = np.flatnonzero(totals)
    check_between("most_classes", most_classes, 1, len(present), "the number of classes")
    truth = np.where(np.arange(clients) < iid_clients, 0, UNKNOWN)
    permutation = rng.permutation(len(labels))
    mixes = np.zeros((clients - iid_clients, len(totals)))
    for mix in mixes:
        chosen = rng.choice(present, rng.integers(1, most_classes, endpoint=True), replace=False)
        mix[chosen] = rng.dirichlet(np.full(len(chosen), alpha))
    full = len(labels) // clients
    if published:
        sizes = np.full(clients, full)
        sizes[-1] = len(labels) - full * (clients - 1)
        counts = np.minimum(_ceil_counts(mixes, sizes[iid_clients:]), totals)
        skewed = deal_shared(labels, counts, rng)
        return DealtOut([*np.split(permutation, np.cumsum(sizes))[:iid_clients], *skewed], truth=truth)

    def taken(size: int) -> Indices:
        slices = np.bincount(labels[permutation[: size * iid_clients]], minlength=len(totals))
        return np.vstack([slices, _ceil_counts(mixes, np.full(len(mixes), size))])

    size = min(largest_size(taken, totals), full)
    if size == 0:
        raise UserError(
            f"clients = {clients}: no size of at least 1 sample gives every one of them its classes without "
            "giving a sample twice; ask for fewer clients or set published = true"
        )
    iid_parts = np.split(permutation[: size * iid_clients], max(iid_clients, 1))[:iid_clients]
    rest = permutation[size * iid_clients :]
    skewed = deal(labels[rest], _ceil_counts(mixes, np.full(len(mixes), size)), rng) if len(mixes) else []
    return DealtOut([*iid_parts, *(rest[part] for part in skewed)], truth=truth)


def _spread(chosen: Indices, shares: tuple[float, ...], base: Array, classes: int) -> Indices:
    """Counts: floor(share_k * base_i) of the k-th chosen label of client i."""
    counts = np.zeros((len(chosen), classes), dtype=np.int64)
    amounts = np.floor(np.outer(base, shares) + EPSILON).astype(np.int64)
    np.put_along_axis(counts, chosen, amounts, axis=1)
    return counts


def _ceil_counts(mixes: Array, sizes: Indices) -> Indices:
    """ceil(share * size), then 1 less of the largest count until the client's total is its size."""
    counts = np.ceil(mixes * sizes[:, None] - EPSILON).astype(np.int64)
    while len(over := np.flatnonzero(counts.sum(axis=1) > sizes)):
        counts[over, counts[over].argmax(axis=1)] -= 1
    return counts


def _check_fits(counts: Indices, totals: Indices, size: int) -> None:
    over = np.flatnonzero(counts.sum(axis=0) > totals)
    if len(over):
        label = int(over[0])
        raise UserError(
            f"size = {size}: the {len(counts)} clients would need {counts[:, label].sum()} samples of label "
            f"{label}, but there are {totals[label]}; ask for a smaller size or leave it out"
        )


def _check_shares(shares: tuple[float, ...]) -> None:
    if not shares or any(not 0 < share <= 1 for share in shares) or math.fsum(shares) > 1 + EPSILON:
        raise UserError(f"shares is {shares}; allowed: numbers above 0 that add up to at most 1")
