"""The true kind of each client, against which clusterings are scored; -1 where there is no such truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.types import Indices, Shift

UNKNOWN = -1


def by_partition(partition: str, counts: Indices, iid_clients: int, groups: Indices | None) -> Indices:
    """What the partition says about the clients, from their label counts (and natural groups).

    iid: all of one kind. two-label-groups: the same labels. majority: the same most frequent label. iid-of-n:
    kind 0 for the IID clients, none for the others. domain: the domain. Other partitions say nothing.
    """
    clients = len(counts)
    if partition == "iid":
        return np.zeros(clients, dtype=np.int64)
    if partition == "two-label-groups":
        return _numbered(counts > 0)
    if partition == "majority":
        most: Indices = counts.argmax(axis=1)
        return most
    if partition == "iid-of-n":
        return np.where(np.arange(clients) < iid_clients, 0, UNKNOWN)
    if partition == "domain" and groups is not None:
        return groups
    return np.full(clients, UNKNOWN, dtype=np.int64)


def with_shifts(kinds: Indices, shifts: Sequence[Shift]) -> Indices:
    """Kinds of clients that are alike in the partition's and in the shift's sense; the latter alone if only it says."""
    order = {shift: place for place, shift in enumerate(dict.fromkeys(shifts))}
    if len(order) == 1:
        return kinds
    shifted = np.array([order[shift] for shift in shifts])
    if (kinds == UNKNOWN).all():
        return shifted
    return np.where(kinds == UNKNOWN, UNKNOWN, _numbered(np.stack([kinds, shifted], axis=1)))


def _numbered(rows: NDArray[Any]) -> Indices:
    """Equal rows get equal numbers from 0 on, in the order of their first appearance."""
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    numbers: Indices = rank[inverse.ravel()]
    return numbers
