"""`summary.json`, typed: read from a file, or worked out from the rows of a run that goes on."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from covey.core.ledger import Cost, Problem
from covey.errors import UserError
from covey.folder.rows import Rows
from covey.training.metrics import BUILT_IN, Metrics, higher_is_better, split_name

KNOWN_SCHEMA = 1
MEASURED = ("global-test/", "local-test/")
MEASURING = " (measuring)"  # ends the name of a step kind that only observed the run
COSTS = ("messages", "bytes_up", "bytes_down", "bytes_peer", "seconds")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best value of a metric and the first round that had it."""

    value: float
    round: int


@dataclass(frozen=True, kw_only=True)
class Target:
    """What it took to reach a value of a metric; None where it was never reached."""

    metric: str
    target: float
    round: int | None = None
    seconds: float | None = None
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Losses:
    """How many replies did not count, and some of them."""

    count: int = 0
    examples: tuple[Problem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All of `summary.json`."""

    covey: str = ""
    name: str = ""
    method: str = ""
    dataset: str = ""
    model: str = ""
    parameters: int = 0
    clients: int = 0
    seed: int = 0
    rounds: int = 0
    rounds_done: int = 0
    finished: bool = False
    last: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, Best] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    cost: Cost = field(default_factory=Cost)
    evaluation_bytes: int = 0
    by_kind: Mapping[str, Cost] = field(default_factory=dict)
    lost: Losses = field(default_factory=Losses)
    refused: Losses = field(default_factory=Losses)
    epsilon: Mapping[str, float] = field(default_factory=dict)
    privacy: Mapping[str, Any] = field(default_factory=dict)  # delta, and what each client lost by kind
    engine: Mapping[str, Any] = field(default_factory=dict)
    wall_seconds: float | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    serving: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def parse_summary(raw: object, where: str) -> Summary:
    """A summary from its JSON; a field of the wrong kind is an error that names it."""
    if not isinstance(raw, dict) or "schema" not in raw:
        raise UserError(f"{where} is damaged: it is not the summary of a run.")
    if raw["schema"] != KNOWN_SCHEMA:
        raise UserError(
            f"{where} has schema {raw['schema']!r}; this version reads schema {KNOWN_SCHEMA}: update covey."
        )
    cost = table(raw.get("cost"), "cost", where)

    def read(name: str, parse: Callable[[Any], T], nothing: T) -> T:
        try:
            return parse(raw[name]) if raw.get(name) is not None else nothing
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as problem:
            raise UserError(f"{where} is damaged: the field {name!r} cannot be read.") from problem

    empty = Summary()
    return Summary(
        **{
            f.name: read(f.name, kind, getattr(empty, f.name))
            for f in fields(Summary)
            if (kind := PLAIN.get(f.name))
        },
        last=read("last", lambda v: {k: number(x) for k, x in v.items()}, {}),
        best=read(
            "best",
            lambda v: {k: Best(value=number(b["value"]), round=whole(b["round"])) for k, b in v.items()},
            {},
        ),
        targets=read("targets", lambda v: tuple(parse_target(t) for t in v), ()),
        cost=read("cost", parse_cost, Cost()),
        evaluation_bytes=read("cost", lambda v: whole(v.get("evaluation_bytes", 0)), 0),
        by_kind=read("cost", lambda v: {k: parse_cost(c) for k, c in v.get("by_kind", {}).items()}, {})
        if cost
        else {},
        lost=read("lost", parse_losses, Losses()),
        refused=read("refused", parse_losses, Losses()),
        epsilon=read(
            "epsilon", lambda v: {str(k): math.inf if x is None else float(x) for k, x in v.items()}, {}
        ),
        privacy=table(raw.get("privacy"), "privacy", where),
        engine=table(raw.get("engine"), "engine", where),
        notes=table(raw.get("notes"), "notes", where),
        serving=read("serving", lambda v: {str(k): tuple(map(whole, slots)) for k, slots in v.items()}, {}),
    )


def text(value: object) -> str:
    """A string, and nothing that only looks like one."""
    if not isinstance(value, str):
        raise TypeError
    return value


def flag(value: object) -> bool:
    """A truth value, and nothing that only looks like one."""
    if not isinstance(value, bool):
        raise TypeError
    return value


def number(value: Any) -> float:
    """A number; JSON's null stands for one that is not finite."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError
    return math.nan if value is None else float(value)


def whole(value: Any) -> int:
    """A whole number of 64 bits, also one that was written as 3.0."""
    found = int(value) if isinstance(value, float) and value.is_integer() else value
    if type(found) is not int or not -(2**63) <= found < 2**63:
        raise TypeError
    return found


PLAIN: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("covey", "name", "method", "dataset", "model"), text),
    **dict.fromkeys(("parameters", "clients", "seed", "rounds", "rounds_done"), whole),
    "finished": flag,
    "wall_seconds": number,
}


def table(value: object, name: str, where: str) -> Mapping[str, Any]:
    """A JSON object, empty when absent."""
    if value is not None and not isinstance(value, dict):
        raise UserError(f"{where} is damaged: the field {name!r} cannot be read.")
    return value or {}


def parse_cost(raw: Mapping[str, Any]) -> Cost:
    """The five costs of one table; absent ones are 0."""
    counts = {name: whole(raw.get(name, 0)) for name in COSTS if name != "seconds"}
    return Cost(**counts, seconds=number(raw.get("seconds", 0.0)))


def parse_target(raw: Mapping[str, Any]) -> Target:
    """One entry of "targets"."""
    round, seconds, sent = (raw.get(name) for name in ("round", "seconds", "bytes"))
    return Target(
        metric=text(raw["metric"]),
        target=number(raw["target"]),
        round=None if round is None else whole(round),
        seconds=None if seconds is None else number(seconds),
        bytes=None if sent is None else whole(sent),
    )


def parse_losses(raw: Mapping[str, Any]) -> Losses:
    """One of "lost" and "refused"."""
    examples = (
        Problem(
            client=whole(e["client"]), kind=text(e["kind"]), round=whole(e["round"]), reason=str(e["reason"])
        )
        for e in raw.get("examples", [])
    )
    return Losses(count=whole(raw["count"]), examples=tuple(examples))


def progress_of(rows: Rows, known: Summary, metrics: Metrics = BUILT_IN) -> Summary:
    """What `known` says of an unfinished run, with everything measured taken from its rows.

    What measuring cost is in no row: it stays as `known` has it.
    """
    last: dict[str, float] = {}
    best: dict[str, Best] = {}
    for name in rows.names:
        curve = rows.overall(name) if name.startswith(MEASURED) else rows.take(np.zeros(0, dtype=np.intp))
        if len(curve):
            last[name] = float(curve.value[-1])
            highest = higher_is_better(name, metrics)
            if split_name(name)[2] != "std" and highest is not None:
                best[name] = best_of(curve, highest=highest)
    by_kind = {kind: cost_of(rows, kind) for kind in kinds_of(rows)}
    measuring = {kind: cost for kind, cost in known.by_kind.items() if kind.endswith(MEASURING)}
    lost, refused = (int(total_of(rows, name)) for name in ("lost", "refused"))
    clients = rows.client[rows.client >= 0]
    return replace(
        known,
        clients=known.clients or int(np.unique(clients).size),
        rounds_done=rows.last_round(),
        finished=False,
        last=last,
        best=best,
        targets=tuple(reach(rows, wanted.metric, wanted.target, metrics) for wanted in known.targets),
        cost=Cost(**{name: sum(getattr(cost, name) for cost in by_kind.values()) for name in COSTS}),
        by_kind=by_kind | measuring,
        lost=replace(known.lost, count=lost),
        refused=replace(known.refused, count=refused),
    )


def best_of(curve: Rows, *, highest: bool) -> Best:
    """The best finite value of a curve and the first round that had it."""
    values = np.where(np.isfinite(curve.value), curve.value, -math.inf if highest else math.inf)
    place = int(values.argmax() if highest else values.argmin())
    return Best(value=float(curve.value[place]), round=int(curve.round[place]))


def reach(rows: Rows, metric: str, target: float, metrics: Metrics = BUILT_IN) -> Target:
    """The first measured round at which `metric` is at least (for a loss: at most) `target`."""
    curve, what = rows.overall(metric), metrics[split_name(metric)[1]]
    there = np.flatnonzero([what.reached(value, target) for value in curve.value.tolist()])
    if not there.size:
        return Target(metric=metric, target=target)
    first = there[0]
    return Target(
        metric=metric,
        target=target,
        round=int(curve.round[first]),
        seconds=float(curve.seconds[first]),
        bytes=int(curve.bytes[first]),
    )


def kinds_of(rows: Rows) -> list[str]:
    """All step kinds that the fleet rows name."""
    prefixes = tuple(f"fleet/{cost}:" for cost in COSTS)
    return sorted({name.partition(":")[2] for name in rows.names if name.startswith(prefixes)})


def cost_of(rows: Rows, kind: str) -> Cost:
    """What one step kind cost so far."""
    found = {name: total_of(rows, f"{name}:{kind}") for name in COSTS}
    return Cost(
        **{name: int(value) for name, value in found.items() if name != "seconds"}, seconds=found["seconds"]
    )


def total_of(rows: Rows, name: str) -> float:
    """The sum of a fleet's count over all rounds; a count that is no number counts for nothing."""
    values = rows.overall(f"fleet/{name}").value
    return float(values[np.isfinite(values)].sum())
