"""Methods in a fleet of which some clients lie in everything they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from covey.core.needs import own_model_of
from covey.core.round import Method, Reply, State, run_rounds
from covey.errors import UserError
from covey.fleet.local import LocalFleet
from covey.fleet.work import Outcome
from covey.runs.config import Config, resolve
from covey.settings.catalogue import METHODS
from covey.testing import CLIENTS, small_fleet
from experiments.hostile import HostileFleet, hostile

LIARS = (3,)
TRAIN = {"lr": 0.1, "batch": 8, "epochs": 1}
SMALL_FOREST = {"trees": 4, "depth": 3, "bins": 16}
SETTINGS: dict[str, dict[str, Any]] = {
    "embedding": {"pretrain_rounds": 1, "pretrain_epochs": 1},
    "krum": {"keep": 3},  # with the updates of one client alone nothing could be bent
    "mime-lite": {"beta": 0.5},
    "boosting": SMALL_FOREST,
    "boosting-personal": {**SMALL_FOREST, "own": 2},
    "bagging": {**SMALL_FOREST, "trees": 2 * CLIENTS},
}
ROUNDS = {
    "fedasync": 16,
    "fedrc": 6,
}  # of those that hear one client, or train one model, in a round; of others 3

Lie = Callable[[Reply], Reply | None]


def with_liars(fleet: LocalFleet, lie: Lie, liars: tuple[int, ...] = LIARS) -> HostileFleet:
    """The same fleet, some clients of which tell the lie, whatever they are asked."""

    def told(outcome: Outcome) -> Outcome:
        if outcome.id not in liars or outcome.reply is None:
            return outcome
        reply = lie(outcome.reply)
        return replace(outcome, reply=reply, lost="" if reply is not None else "it is silent")

    return hostile(fleet, lambda _call, _tasks, outcomes: [told(outcome) for outcome in outcomes])


def config(name: str) -> Config:
    """A run of the method with little training; everybody participates where it draws clients."""
    settings: dict[str, Any] = {"name": name, **SETTINGS.get(name, {})}
    tables = {"train": dict(TRAIN), "data": {"clients": CLIENTS}}
    try:
        return resolve({**tables, "method": {**settings, "per_round": CLIENTS}})
    except UserError:
        return resolve({**tables, "method": settings})


def method(name: str) -> Method:
    """The method of that run."""
    return config(name).method


def honest_fleet(name: str) -> LocalFleet:
    """A fleet with the model that the method trains: a perceptron, or the trees that it grows."""
    if own_model_of(METHODS.find(name)) is None:
        return small_fleet(lanes=True)
    model = {key: value for key, value in config(name)["model"].items() if key != "buffers"}
    return small_fleet(lanes=True, model=model)


def rounds_of(name: str) -> int:
    """As many as the method needs to learn something; trees have to be whole."""
    if own_model_of(METHODS.find(name)) is not None:
        return config(name).top.rounds
    return ROUNDS.get(name, 3)


def run_with(
    method: Method, lie: Lie, liars: tuple[int, ...] = LIARS, rounds: int | None = None
) -> tuple[State, HostileFleet]:
    """A run of the method with the liars in it, and its fleet."""
    fleet = with_liars(honest_fleet(method.name), lie, liars)
    try:
        return run_rounds(method, fleet, rounds=rounds or rounds_of(method.name)), fleet
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


def model_times(factor: float) -> Lie:
    """The trained model itself times a factor."""
    return lambda reply: reply if reply.vector is None else replace(reply, vector=reply.vector * factor)


def size_of(size: int) -> Lie:
    return lambda reply: replace(reply, size=size)


def every_number(value: float, kind: type = float) -> Lie:
    """Every number of that kind and every entry of an array of such that it tells is that value."""
    letters = "f" if kind is float else "iu"

    def change(told: Any) -> Any:
        if isinstance(told, np.ndarray) and told.dtype.kind in letters:
            limits = None if kind is float else np.iinfo(told.dtype)
            return np.full_like(told, value if limits is None else min(int(value), limits.max))
        if isinstance(told, list):
            return [change(part) for part in told]
        return kind(value) if type(told) is kind else told

    return lambda reply: numbers(reply, change)


def misshapen(reply: Reply) -> Reply:
    """A row and arrays that are one entry too long."""

    def longer(told: Any) -> Any:
        if isinstance(told, np.ndarray):
            return np.concatenate([told.ravel(), told.ravel()[:1]])
        return [*told, *told[:1]] if isinstance(told, list) else told

    vector = reply.vector if reply.vector is None else torch.cat([reply.vector, reply.vector[:1]])
    return replace(numbers(reply, longer), vector=vector)


HONEST: Lie = lambda reply: reply  # noqa: E731
SILENT: Lie = lambda _: None  # noqa: E731
WITHIN: dict[str, Lie] = {  # what the guard lets pass
    "a row of zeros": row_of(0.0),
    "its model with the opposite sign": model_times(-1.0),
}
LIES: dict[str, Lie] = {
    "a row of 1e30": row_of(1e30),
    "a row of 3e38": row_of(3e38),
    "its model times 1000": model_times(1000.0),
    "a row of NaN": row_of(float("nan")),
    "a size of 10^18": size_of(10**18),
    "negative numbers": every_number(-1.0),
    "numbers of 1e30": every_number(1e30),
    "numbers of 1e308": every_number(1e308),
    "zeros for all numbers": every_number(0.0),
    "NaN for all numbers": every_number(float("nan")),
    "10^18 for all whole numbers": every_number(10**18, int),
    "a row and arrays of another shape": misshapen,
}
ALL = tuple(METHODS)
