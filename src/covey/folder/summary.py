"""`summary.json`: one type that a run writes and every reader gets, also of an unfinished run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_type_hints

import numpy as np

from covey.core.ledger import Cost, Ledger, Problem
from covey.errors import UserError
from covey.files import finite
from covey.folder.plain import read_as
from covey.folder.rows import Rows
from covey.settings.registry import Origin
from covey.training.metrics import BUILT_IN, Metrics, higher_is_better, split_name

KNOWN_SCHEMA = 1
MEASURED = ("global-test/", "local-test/")
MEASURING = " (measuring)"  # ends the name of a step kind that only observed the run
COSTS = ("messages", "bytes_up", "bytes_down", "bytes_peer", "seconds")


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


@dataclass(kw_only=True)
class Costs(Cost):
    """What a run cost in all, by step kind, and what measuring it took apart from that."""

    evaluation_bytes: int = 0
    by_kind: Mapping[str, Cost] = field(default_factory=dict)

    @classmethod
    def of(cls, ledger: Ledger) -> "Costs":
        """The ledger's totals."""
        measured = {f"{kind}{MEASURING}": cost for kind, cost in ledger.measuring.items()}
        return cls(
            **{**vars(ledger.cost), "seconds": ledger.clock},
            evaluation_bytes=sum(cost.bytes for cost in ledger.measuring.values()),
            by_kind={**ledger.total, **measured},
        )


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All of `summary.json`, as it is written and read."""

    schema: int = KNOWN_SCHEMA
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
    pruned: bool = False  # ended early by a tuner
    last: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, Best] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    cost: Costs = field(default_factory=Costs)
    lost: Losses = field(default_factory=Losses)
    refused: Losses = field(default_factory=Losses)
    epsilon: Mapping[str, float] = field(default_factory=dict)
    privacy: Mapping[str, Any] = field(default_factory=dict)  # delta, and what each client lost by kind
    engine: Mapping[str, Any] = field(default_factory=dict)
    own: tuple[Origin, ...] = ()
    wall_seconds: float | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    serving: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As plain values, for the file and for trackers; null is a number that is not finite."""
        found: dict[str, Any] = finite(self)
        return found


def parse_summary(raw: object, where: str) -> Summary:
    """A summary from its JSON; a field of the wrong kind is an error that names it."""
    if not isinstance(raw, dict) or "schema" not in raw:
        raise UserError(f"{where} is damaged: it is not the summary of a run.")
    if raw["schema"] != KNOWN_SCHEMA:
        raise UserError(
            f"{where} has schema {raw['schema']!r}; this version reads schema {KNOWN_SCHEMA}: update covey."
        )
    found: dict[str, Any] = {}
    for name, kind in get_type_hints(Summary).items():
        if raw.get(name) is None:
            continue
        try:
            found[name] = read_as(kind, raw[name])
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as problem:
            raise UserError(f"{where} is damaged: the field {name!r} cannot be read.") from problem
    spent = {key: math.inf if math.isnan(value) else value for key, value in found.get("epsilon", {}).items()}
    return Summary(**{**found, "epsilon": spent})


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
    measuring = {kind: cost for kind, cost in known.cost.by_kind.items() if kind.endswith(MEASURING)}
    costs = {name: sum(getattr(cost, name) for cost in by_kind.values()) for name in COSTS}
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
        cost=Costs(**costs, evaluation_bytes=known.cost.evaluation_bytes, by_kind=by_kind | measuring),
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
    """The sum of a fleet's count over all rounds; a count that is not a number counts as 0."""
    values = rows.overall(f"fleet/{name}").value
    return float(values[np.isfinite(values)].sum())
