"""The true cluster of each client, against which clusterings are scored; -1 where there is no such truth."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.types import Indices, Shift

UNKNOWN = -1


def with_shifts(clusters: Indices, shifts: Sequence[Shift]) -> Indices:
    """Clusters of clients that are alike in the partition's and in the shift's sense; the latter alone if only it
    says."""
    order = {shift: place for place, shift in enumerate(dict.fromkeys(shifts))}
    if len(order) == 1:
        return clusters
    shifted = np.array([order[shift] for shift in shifts])
    if (clusters == UNKNOWN).all():
        return shifted
    return np.where(clusters == UNKNOWN, UNKNOWN, numbered(np.stack([clusters, shifted], axis=1)))


def numbered(rows: NDArray[Any]) -> Indices:
    """Equal rows get equal numbers from 0 on, in the order of their first appearance."""
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    numbers: Indices = rank[inverse.ravel()]
    return numbers
