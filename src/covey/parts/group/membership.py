"""Groups by vectors that the clients report: found once, then kept as clients come and drift."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covey.core import GROUPS, MODEL_PER_GROUP, NOTHING, Key, Round, part
from covey.parts.ask_once import Ask, news
from covey.parts.banks import one_per_parent
from covey.parts.group.centroids import Membership, drifted_groups, founded, joined
from covey.parts.group.figures import note_groups

Vectors = dict[int, NDArray[Any]]
GroupFinder = Callable[[Sequence[int], NDArray[Any]], NDArray[np.int64]]

MEMBERSHIP: Key[dict[str, Any]] = Key("groups by vector")


def maintained_groups(
    now: Round,
    ask: Ask[NDArray[Any]],
    found: GroupFinder,
    *,
    every: int = 0,
    min_size: int = 2,
    title: str = "Clients",
) -> dict[int, int]:
    """Asks every unknown client that is here; the first time everybody is grouped, later unseen clients are placed.

    With `every` > 0 all that are here report again every so many rounds, and migrate where they no longer fit.
    """
    before = membership = read_membership(now.memory)
    known = set(membership.ids) if membership else set()
    arrived = news(now, known, ask)
    if membership is None:
        if not arrived:
            return {}
        vectors = np.stack(list(arrived.values()))
        membership = founded(tuple(arrived), vectors, found(list(arrived), vectors))
    else:
        membership = joined(membership, arrived)
        if every and now.number % every == 0:
            membership = drifted_groups(
                membership, ask([client for client in now.here if client in known]), min_size
            )
    if membership is not before:
        MEMBERSHIP.keep(now.memory, write_membership(membership))
        note_groups(
            now, dict(zip(membership.ids, membership.vectors, strict=True)), membership.groups, title=title
        )
    return membership.groups


def read_membership(memory: Mapping[str, Any]) -> Membership | None:
    """The groups as the server's memory has them; None before the first clustering."""
    saved = memory.get(MEMBERSHIP.name)
    if saved is None:
        return None
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


@part("bank", "per-group", shows=NOTHING, needs=(GROUPS,), gives=(MODEL_PER_GROUP,))
def one_per_group(now: Round) -> Tensor:
    """A model, a row of the bank, for every group; a new group starts from the given model.

    Where the grouping knows which group a later one was most like when it was founded, it starts from that one's model.
    """
    membership = read_membership(now.memory)
    parents = membership.parents if membership else ()
    founders = range(len(parents), max(now.groups.values(), default=0) + 1)
    return one_per_parent(now, [*parents, *founders])
