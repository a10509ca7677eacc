"""Evaluation that says what it is: every number is named after the data it was measured on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from covey.core import Fleet, Measurement, Method, Reply, State, Task, served, server_client
from covey.ranges import Count
from covey.settings import validated_in
from covey.steps.evaluate import Evaluate


@validated_in("measure")
@dataclass(frozen=True, kw_only=True)
class Measuring:
    """What is measured every `every` rounds, and after the last one.

    global_test: every row of the bank on the server's test set. local_test: every client, with the row that serves
    it, on its own test data: mean over clients, weighted by samples, standard deviation, worst 10 %, by group.
    whom: all clients, or only those that trained in the round (some papers do so).
    """

    every: Count = 1
    global_test: bool = True
    local_test: bool = True
    whom: Literal["all", "trained"] = "all"

    def __call__(self, method: Method, state: State, fleet: Fleet, last: bool) -> list[Measurement]:
        if state.round % self.every and not last:
            return []
        found: list[Measurement] = []
        if self.global_test:
            found += on_global_test(state, fleet)
        if self.local_test:
            found += on_local_tests(method, state, fleet, self.whom)
        return found


def scores(method: Method, state: State, fleet: Fleet) -> dict[str, float]:
    """Every overall number of a state by its name, e.g. "local-test/accuracy-mean"."""
    found = Measuring()(method, state, fleet, True)
    return {f"{m.split}/{m.metric}": m.value for m in found if m.client == -1 and m.group == -1}


def on_global_test(state: State, fleet: Fleet) -> list[Measurement]:
    """Every row on the server's test set (equal ones once); of several, each (as a group) and their mean."""
    rows = state.models
    first: dict[bytes, int] = {}
    same_as = [first.setdefault(_fingerprint(row), number) for number, row in enumerate(rows)]
    tasks = {server_client(r): Task(models=rows[r : r + 1], slots=(r,)) for r in first.values()}
    answers = {reply.slot: reply for reply in fleet.ask(Evaluate(), tasks, measure=True)}
    replies = {r: answers[same] for r, same in enumerate(same_as) if same in answers}
    found = []
    for metric in next(iter(replies.values())).stats if replies else ():
        values = {r: float(reply.stats[metric]) for r, reply in replies.items()}
        mean = float(np.mean(list(values.values())))
        found.append(Measurement(split="global-test", metric=metric, value=mean))
        if len(values) > 1:
            found += [
                Measurement(split="global-test", metric=metric, value=value, group=r)
                for r, value in values.items()
            ]
    return found


def _fingerprint(row: Tensor) -> bytes:
    """Equal for equal rows: where everybody holds the same model, it is measured once."""
    return hashlib.sha256(np.ascontiguousarray(row.numpy()).data).digest()


def on_local_tests(
    method: Method, state: State, fleet: Fleet, whom: Literal["all", "trained"] = "all"
) -> list[Measurement]:
    """Every client that the method serves (or those of them that trained in the round), on its own test data."""
    asked = set(state.worked if whom == "trained" else state.seen)
    members = [i for i in fleet.members() if i in asked]
    replies = fleet.ask(Evaluate(), served(method, state, fleet, members), measure=True)
    replies = [reply for reply in replies if reply.size]
    found: list[Measurement] = []
    for metric in replies[0].stats if replies else ():
        up = fleet.objective.higher_is_better and metric == fleet.objective.main
        for reply in replies:
            found.append(
                Measurement(
                    split="local-test",
                    metric=metric,
                    value=float(reply.stats[metric]),
                    client=reply.id,
                    group=state.groups.get(reply.id, -1),
                )
            )
        found += [
            Measurement(split="local-test", metric=f"{metric}-{name}", value=value)
            for name, value in over_clients(replies, metric, higher_is_better=up).items()
        ]
        for group, part in by_group(replies, state.groups).items():
            values = over_clients(part, metric, higher_is_better=up)
            found += [
                Measurement(split="local-test", metric=f"{metric}-{name}", value=values[name], group=group)
                for name in ("mean", "weighted")
            ]
    return found


def over_clients(replies: Sequence[Reply], metric: str, *, higher_is_better: bool) -> dict[str, float]:
    """mean over clients, weighted by samples, standard deviation, and mean of the worst 10 % (at least one client)."""
    values = np.array([float(reply.stats[metric]) for reply in replies])
    sizes = np.array([reply.size for reply in replies])
    worst_first = np.sort(values) if higher_is_better else np.sort(values)[::-1]
    return {
        "mean": float(values.mean()),
        "weighted": float((values * sizes).sum() / sizes.sum()),
        "std": float(values.std()),
        "worst10": float(worst_first[: math.ceil(len(values) / 10)].mean()),
    }


def by_group(replies: Sequence[Reply], groups: Mapping[int, int]) -> dict[int, list[Reply]]:
    """The replies of each group, where there are groups."""
    parts: dict[int, list[Reply]] = {}
    for reply in replies:
        if reply.id in groups:
            parts.setdefault(groups[reply.id], []).append(reply)
    return dict(sorted(parts.items()))
