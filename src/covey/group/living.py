"""Groups by vectors that the clients report: found once, then kept as clients come and drift."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core import Round
from covey.group.centroids import Book, drifted, founded, joined
from covey.group.figures import note_groups

Vectors = dict[int, NDArray[Any]]
Ask = Callable[[Sequence[int]], Vectors]
Found = Callable[[Sequence[int], NDArray[Any]], NDArray[np.int64]]

BOOK = "groups by vector"


def living_groups(
    now: Round, ask: Ask, found: Found, *, every: int = 0, min_size: int = 2, title: str = "Clients"
) -> dict[int, int]:
    """Asks whoever is here and unknown; the first time everybody is grouped, later newcomers are placed.

    With `every` > 0 all that are here report again every so many rounds, and migrate where they no longer fit.
    """
    before = book = read_book(now.memory)
    known = set(book.ids) if book else set()
    arrived = ask([client for client in now.here if client not in known])
    if book is None:
        if not arrived:
            return {}
        vectors = np.stack(list(arrived.values()))
        book = founded(tuple(arrived), vectors, found(list(arrived), vectors))
    else:
        book = joined(book, arrived)
        if every and now.number % every == 0:
            book = drifted(book, ask([client for client in now.here if client in known]), min_size)
    if book is not before:
        now.memory[BOOK] = write_book(book)
        note_groups(now, dict(zip(book.ids, book.vectors, strict=True)), book.groups, title=title)
    return book.groups


def read_book(memory: Mapping[str, Any]) -> Book | None:
    """The groups as the server's memory has them; None before the first clustering."""
    if BOOK not in memory:
        return None
    saved = memory[BOOK]
    return Book(
        ids=tuple(int(i) for i in saved["ids"]),
        vectors=saved["vectors"],
        labels=np.asarray(saved["labels"], np.int64),
        parents=tuple(int(p) for p in saved["parents"]),
    )


def write_book(book: Book) -> dict[str, Any]:
    """Plain values and arrays, as a checkpoint keeps them."""
    return {
        "ids": np.array(book.ids, np.int64),
        "vectors": book.vectors,
        "labels": book.labels,
        "parents": list(book.parents),
    }


def one_a_living_group(now: Round) -> Tensor:
    """A row for every group; a group that was founded later starts from the model of the one it was most like."""
    book = read_book(now.memory)
    rows = list(now.models)
    for group in range(len(rows), len(book.parents) if book else 1):
        parent = book.parents[group] if book else group
        rows.append(rows[parent] if parent < len(rows) else now.fleet.start())
    return torch.stack(rows) if len(rows) > len(now.models) else now.models
