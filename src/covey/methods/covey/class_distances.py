"""How unlike clients are, class by class, from their portraits (methods/covey/portrait.py).

    D_ij = sum over classes of w_c <A_ic - A_jc, B_ic - B_jc> / sum of w_c,     divided by the same between classes

w_c is the weight of a class that both clients hold, n_ic n_jc / (n_ic + n_jc). D_ij is 0 on average where the clients'
classes look the same, whatever their label mixes, and 1 where the same class looks as different at two clients as two
different classes do at one. So label skew alone makes no distance, and turned or relabelled data do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.methods.covey.portrait import Portrait

Floats = NDArray[np.float64]

LEAST = 2.0  # samples that a class needs at a client to be compared: one in each half
ENOUGH = 8.0  # from here on more samples make the bits no more certain


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassDistances:
    """D_ij and how sure it is: the total weight of the classes that were compared (0: none in common)."""

    distance: Floats
    weight: Floats


def class_distances(portraits: Sequence[Portrait]) -> ClassDistances:
    """All pairs of clients; the matrices are symmetric, their diagonals 0."""
    counts = np.stack([portrait.counts for portrait in portraits])
    halves = np.stack([portrait.halves for portrait in portraits])  # [clients, 2, classes, d]
    seen = np.where(counts >= LEAST, np.minimum(counts, ENOUGH), 0.0)
    total = np.zeros((len(portraits), len(portraits)))
    weight = np.zeros_like(total)
    for label in np.flatnonzero((seen > 0).sum(axis=0) > 1):
        first, second = halves[:, 0, label], halves[:, 1, label]
        product = first @ second.T
        own = np.diagonal(product)
        squares = own[:, None] + own[None, :] - product - product.T
        sure = pair_weights(seen[:, label])
        total += sure * squares
        weight += sure
    np.fill_diagonal(total, 0.0)
    np.fill_diagonal(weight, 0.0)
    unit = between_classes(halves, seen)
    distance = np.divide(total, weight * unit, out=np.zeros_like(total), where=weight > 0)
    return ClassDistances(distance=distance, weight=weight)


def pair_weights(counts: Floats) -> Floats:
    """n_i n_j / (n_i + n_j): the inverse variance of a difference of two means; 0 where one has no samples."""
    both = counts[:, None] * counts[None, :]
    return np.divide(both, counts[:, None] + counts[None, :], out=np.zeros_like(both), where=both > 0)


def between_classes(halves: Floats, seen: Floats) -> float:
    """The mean squared distance of two classes of one client, in the same unbiased way; 1 where it cannot be told."""
    total = weight = 0.0
    for (first, second), counts in zip(halves, seen, strict=True):
        product = first @ second.T
        own = np.diagonal(product)
        squares = own[:, None] + own[None, :] - product - product.T
        sure = pair_weights(counts)
        np.fill_diagonal(sure, 0.0)
        total += float((sure * squares).sum())
        weight += float(sure.sum())
    return total / weight if weight > 0 and total > 0 else 1.0


def on_a_map(found: ClassDistances, directions: int = 4) -> Floats:
    """Places of the clients whose squared distances are D as nearly as can be (classical scaling), for the report."""
    count = len(found.distance)
    known = np.where(found.weight > 0, found.distance, 0.0)
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centre @ known @ centre)
    largest = np.argsort(values)[::-1][:directions]
    return np.asarray(vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0.0)))
