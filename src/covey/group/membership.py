"""Groups by vectors that the clients report: found once, then kept as clients come and drift."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core import Round
from covey.group.centroids import Membership, drifted, founded, joined
from covey.group.figures import note_groups

Vectors = dict[int, NDArray[Any]]
Ask = Callable[[Sequence[int]], Vectors]
Found = Callable[[Sequence[int], NDArray[Any]], NDArray[np.int64]]

MEMBERSHIP = "groups by vector"


def maintained_groups(
    now: Round, ask: Ask, found: Found, *, every: int = 0, min_size: int = 2, title: str = "Clients"
) -> dict[int, int]:
    """Asks whoever is here and unknown; the first time everybody is grouped, later newcomers are placed.

    With `every` > 0 all that are here report again every so many rounds, and migrate where they no longer fit.
    """
    before = membership = read_membership(now.memory)
    known = set(membership.ids) if membership else set()
    arrived = ask([client for client in now.here if client not in known])
    if membership is None:
        if not arrived:
            return {}
        vectors = np.stack(list(arrived.values()))
        membership = founded(tuple(arrived), vectors, found(list(arrived), vectors))
    else:
        membership = joined(membership, arrived)
        if every and now.number % every == 0:
            membership = drifted(
                membership, ask([client for client in now.here if client in known]), min_size
            )
    if membership is not before:
        now.memory[MEMBERSHIP] = write_membership(membership)
        note_groups(
            now, dict(zip(membership.ids, membership.vectors, strict=True)), membership.groups, title=title
        )
    return membership.groups


def read_membership(memory: Mapping[str, Any]) -> Membership | None:
    """The groups as the server's memory has them; None before the first clustering."""
    if MEMBERSHIP not in memory:
        return None
    saved = memory[MEMBERSHIP]
    return Membership(
        ids=tuple(int(i) for i in saved["ids"]),
        vectors=saved["vectors"],
        labels=np.asarray(saved["labels"], np.int64),
        parents=tuple(int(p) for p in saved["parents"]),
    )


def write_membership(membership: Membership) -> dict[str, Any]:
    """Plain values and arrays, as a checkpoint keeps them."""
    return {
        "ids": np.array(membership.ids, np.int64),
        "vectors": membership.vectors,
        "labels": membership.labels,
        "parents": list(membership.parents),
    }


def one_per_maintained_group(now: Round) -> Tensor:
    """A row for every group; a group that was founded later starts from the model of the one it was most like."""
    membership = read_membership(now.memory)
    rows = list(now.models)
    for group in range(len(rows), len(membership.parents) if membership else 1):
        parent = membership.parents[group] if membership else group
        rows.append(rows[parent] if parent < len(rows) else now.fleet.start())
    return torch.stack(rows) if len(rows) > len(now.models) else now.models
