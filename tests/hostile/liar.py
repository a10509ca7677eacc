"""A simulated fleet in which one client lies: what it sends is changed after it was made, before the server sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from covey.core import Method, Reply, State, run
from covey.fleet.local import LocalFleet
from covey.fleet.work import Call, Job, Outcome
from covey.methods import METHODS
from covey.testing import check_toml, small_fleet

LIAR = 3
QUICK = {"embedding": {"pretrain_rounds": 1, "pretrain_epochs": 1}}

Lie = Callable[[Reply], Reply]


class LiarFleet(LocalFleet):
    """Client `LIAR` tells the lie, whatever it is asked."""

    lie: Lie

    @property
    def executor(self) -> Any:
        honest = super().executor

        def work(call: Call, jobs: Sequence[Job]) -> list[Outcome]:
            return [
                replace(o, reply=self.lie(o.reply)) if o.id == LIAR and o.reply is not None else o
                for o in honest(call, jobs)
            ]

        return work

    def child(self, *args: Any) -> LocalFleet:
        fleet = super().child(*args)
        return with_liar(fleet, self.lie)


def with_liar(fleet: LocalFleet, lie: Lie) -> LiarFleet:
    """The same fleet, one client of which lies."""
    fleet.__class__ = LiarFleet
    fleet.lie = lie  # type: ignore[attr-defined]
    assert isinstance(fleet, LiarFleet)
    return fleet


def method(name: str) -> Method:
    """The method as the contract checks it; everybody takes part where it draws clients."""
    settings: dict[str, Any] = dict(QUICK.get(name, {}))
    try:
        return check_toml(name, {**settings, "per_round": 8})
    except Exception:
        return check_toml(name, settings)


def run_with(name: str, lie: Lie, rounds: int = 3) -> tuple[State, LiarFleet]:
    """A run of the method with the liar in it, and its fleet."""
    fleet = with_liar(small_fleet(), lie)
    try:
        return run(method(name), fleet, rounds=rounds), fleet
    finally:
        fleet.close()


def numbers(reply: Reply, change: Callable[[Any], Any]) -> Reply:
    """The reply with every number and array of its statistics changed."""
    return replace(reply, stats={name: change(value) for name, value in reply.stats.items()})


def row_of(value: float) -> Lie:
    """A trained row of that value throughout."""
    return lambda reply: (
        reply if reply.vector is None else replace(reply, vector=torch.full_like(reply.vector, value))
    )


def update_times(factor: float) -> Lie:
    """The trained row itself times a factor."""
    return lambda reply: reply if reply.vector is None else replace(reply, vector=reply.vector * factor)


def size_of(size: int) -> Lie:
    return lambda reply: replace(reply, size=size)


def every_number(value: float) -> Lie:
    """Every number and every entry of an array that it tells is that value."""

    def change(told: Any) -> Any:
        if isinstance(told, np.ndarray):
            return np.full_like(told, value) if told.dtype.kind == "f" else told
        if isinstance(told, list):
            return [change(part) for part in told]
        return value if isinstance(told, float) else told

    return lambda reply: numbers(reply, change)


LIES: dict[str, Lie] = {
    "a row of 1e30": row_of(1e30),
    "a row of 3e38": row_of(3e38),
    "its model times 1000": update_times(1000.0),
    "a row of NaN": row_of(float("nan")),
    "a size of 10^18": size_of(10**18),
    "negative numbers": every_number(-1.0),
    "numbers of 1e308": every_number(1e308),
    "zeros for all numbers": every_number(0.0),
    "NaN for all numbers": every_number(float("nan")),
}
ALL = tuple(METHODS)
