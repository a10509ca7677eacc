"""How clients' data change while a run is under way: suddenly, gradually, repeatedly, one client after another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from covey.data.effects import Effect
from covey.data.pooled import Pooled
from covey.data.types import GOLDEN, Samples, Shift, View

Course = Literal["sudden", "gradual", "recurring"]


def share_changed(table: Mapping[str, Any], place: int, number: int) -> float:
    """The share of a client's samples that have changed by round `number`; it is the `place`-th of the table's clients.

    sudden: all from `round` on. gradual: one `rounds`-th more in every round from then on. recurring: all for `rounds`
    rounds, then none for as many, and again. `stagger` is how many rounds later it begins for each next client.
    """
    since = number - (int(table["round"]) + place * int(table.get("stagger", 0)))
    if since < 0:
        return 0.0
    length = int(table.get("rounds", 1))
    course = table.get("course", "sudden")
    if course == "gradual":
        return min(1.0, (since + 1) / length)
    return 1.0 if course == "sudden" else float(since // length % 2 == 0)


def changed(table: Mapping[str, Any], now: Shift) -> Shift:
    """The client's shift with the drift's own in it."""
    effects = tuple(Effect(name, float(table.get("strength", 1.0))) for name in table.get("images", ()))
    return replace(
        now,
        rotations=now.rotations + int(table.get("rotations", 0)),
        label_offset=now.label_offset + int(table.get("label_offset", 0)),
        effects=now.effects + effects,
    )


def drifted(
    samples: Samples,
    client: int,
    number: int,
    tables: Sequence[Mapping[str, Any]],
    others: Callable[[int], Samples],
) -> View:
    """The client's samples in round `number`: of the tables that name it and have begun, the latest counts.

    A table with `mix_of` takes as many samples of that client's as the client has itself: another label mix.
    """
    begun = []
    for table in tables:
        listed = [table["clients"]] if isinstance(table["clients"], int) else list(table["clients"])
        if client in listed:
            share = share_changed(table, listed.index(client), number)
            start = int(table["round"]) + listed.index(client) * int(table.get("stagger", 0))
            if start <= number:
                begun.append((start, share, table))
    if not begun or not len(samples):
        return samples
    _, share, table = max(begun, key=lambda one: one[0])
    if share == 0:
        return samples
    base = samples
    if table.get("mix_of") is not None:
        other = others(int(table["mix_of"]))
        base = replace(samples, index=other.index[np.arange(len(samples)) % len(other)])
    new = base.shifted(changed(table, samples.shift))
    if share >= 1:
        return new
    moved = (np.arange(len(samples)) * GOLDEN) % 1.0 < share
    return Pooled([new.select(np.flatnonzero(moved)), samples.select(np.flatnonzero(~moved))])
