"""Rows that belong together: all of one person, pupil or day are on one side of every split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from covey.arrays import Array
from covey.streams import stream

if TYPE_CHECKING:
    from covey.data.types import Dataset, Indices, View


def units_of(dataset: Dataset) -> Indices | None:
    """The unit of every sample, where the data set has units; None where every sample stands for itself."""
    return dataset.natural[dataset.together] if dataset.together else None


def ranks(units: int, rng: np.random.Generator) -> Array:
    """A rank in [0, 1) for every unit, evenly spaced and in random order: those below s are a share s of the units."""
    found = np.empty(units)
    found[rng.permutation(units)] = np.arange(units) / max(1, units)
    return found


def split_units(
    units: Indices, share: float, rng: np.random.Generator, clients: Indices | None = None
) -> tuple[Indices, Indices]:
    """Training and test positions, both ascending; whole units, in random order, until a `share` of the rows is test.

    Units that one client alone has are drawn client by client, those of several once for all. Nobody is left without
    training rows: a client's last unit stays in training, wherever it is.
    """
    count = int(units.max()) + 1
    order = rng.permutation(count)
    sizes = np.bincount(units, minlength=count)
    is_test = np.zeros(count, bool)
    owners = _owners(units, clients)
    for owner in np.unique(owners).tolist():
        mine = order[owners[order] == owner]
        before = np.cumsum(sizes[mine]) - sizes[mine]
        is_test[mine[before < share * sizes[mine].sum()]] = True
    for rows in [units] if clients is None else [units[clients == client] for client in np.unique(clients)]:
        if is_test[rows].all():
            is_test[rows[-1]] = False
    held = is_test[units]
    return np.flatnonzero(~held), np.flatnonzero(held)


def _owners(units: Indices, clients: Indices | None) -> Indices:
    """The client that alone has a unit; -1 where several have it."""
    if clients is None:
        return np.full(int(units.max()) + 1, -1)
    low, high = np.full(int(units.max()) + 1, clients.max()), np.full(int(units.max()) + 1, -1)
    np.minimum.at(low, units, clients)
    np.maximum.at(high, units, clients)
    return np.where(low == high, low, -1)


def hold_out_units(
    parts: Sequence[Indices], units: Indices, share: float, rng: np.random.Generator
) -> tuple[list[Indices], list[Indices]]:
    """Training and test parts of every client: the same `share` of the units is held out at all of them.

    A client that would have no training rows keeps a unit, one that nobody else has if it has several; one that would
    have no test rows gives such a unit, or has none.
    """
    of = ranks(int(units.max()) + 1, rng)
    held = of < share
    owners = np.zeros(len(of), np.int64)
    of_client = [np.unique(units[part]) for part in parts]
    for own in of_client:
        owners[own] += 1
    for keeps in (True, False):
        for own in of_client:
            alone = own[owners[own] == 1] if len(own) > 1 else own[:0]
            if keeps and len(own) and held[own].all():
                last = alone if len(alone) else own
                held[last[of[last].argmax()]] = False
            elif not keeps and len(alone) and not held[own].any():
                held[alone[of[alone].argmin()]] = True
    return [part[~held[units[part]]] for part in parts], [part[held[units[part]]] for part in parts]


def fold_of(view: View, folds: int, seed: int, name: str) -> Indices | None:
    """Which of `folds` folds each row is in, by its unit, the same at all clients; None where there are no units."""
    units = view.units()
    if units is None:
        return None
    every = view.dataset.natural[view.dataset.together]
    of = ranks(int(every.max()) + 1, stream(seed, "together", name))
    return np.asarray(of[units] * folds, np.int64)
