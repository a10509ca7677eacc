"""One idea: a round is a few questions and one matrix.

    group -> bank -> select -> send -> local -> mix -> update -> after

The server holds a *bank* of models, one flat row each. A method answers the questions; combining is always a matrix
that maps `[old rows; replies]` to the new rows. Nothing in this file knows any method by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from covey.core.checks import as_chosen, check_bank, check_round, check_turnout, without_culprits
from covey.core.declare import part
from covey.core.messages import Reply, Task
from covey.core.needs import ONE_MODEL, check_parts, named_parts
from covey.core.protocols import Fleet, Mixing, Step
from covey.core.shows import NOTHING
from covey.errors import RunError, SilentRoundError, UserError, warn_caller
from covey.streams import stream as stream
from covey.training.bench.base import one_thread

if TYPE_CHECKING:
    from covey.parts.steps.train import Train


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """All that the server remembers between rounds; saving it saves the run.

    Args:
        models: the bank, one row per model.
        groups: client -> cluster.
        memory: what parts keep: arrays, plain values.
        seen: clients in the order in which they first appeared.
        notes: plain data for the report.
        round: rounds done.
        worked: whose replies made the last round.

    Examples:
        >>> covey.run("fedavg", rounds=1, out="runs/state", progress=False).state
        State(round 1: 1 models of 4,810 numbers, 20 clients, 0 groups)
    """

    models: Tensor
    groups: Mapping[int, int] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    seen: Sequence[int] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    round: int = 0
    worked: tuple[int, ...] = ()

    def __repr__(self) -> str:
        models, groups = (
            f"{len(self.models):,} models of {self.models.shape[-1]:,}",
            set(self.groups.values()),
        )
        return (
            f"State(round {self.round}: {models} numbers, {len(self.seen):,} clients, {len(groups)} groups)"
        )


@dataclass(kw_only=True, eq=False)
class Round:
    """What is known so far in this round; every part reads it, and what a part changes here becomes the next State.

    Args:
        number: of the round, from 1.
        fleet: the only door to the clients.
        here: who can be reached in this round.
        models: the bank, one row per model.
        groups: client -> cluster.
        memory: what parts keep.
        seen: clients in the order in which they first appeared.
        notes: plain data for the report.
        chosen: who participates; a client drawn twice stands there twice.
        tasks: what each client was sent.
        sent: of replies to tasks of earlier rounds: of which round.
        replies: what came back.
        worked: whose answers are in the replies, where these are not one per client.

    Examples:
        >>> def first_three(now: covey.Round) -> list[int]:
        ...     return list(now.here)[:3]
    """

    number: int
    fleet: Fleet
    here: Sequence[int]
    models: Tensor
    groups: dict[int, int]
    memory: dict[str, Any]
    seen: Sequence[int]
    notes: dict[str, Any]
    chosen: list[int] = field(default_factory=list)
    tasks: dict[int, Task] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)
    worked: tuple[int, ...] = ()

    def stream(self, *names: str | int) -> np.random.Generator:
        """The random stream of that name for this round."""
        return stream(self.fleet.seed, *names, "round", self.number)

    def row_of(self, client: int) -> int:
        """The row of a client in a bank with one row per client."""
        return self.seen.index(client)

    def start_of(self, reply: Reply) -> Tensor:
        """The row that a reply started from, as it was sent."""
        task = self.tasks[reply.id]
        return task.models[task.slots.index(reply.slot)]

    def ask(self, step: Step, ids: Iterable[int], **args: Any) -> list[Reply]:
        """Asks some clients something that needs no model."""
        task = Task(args=args)
        return self.fleet.ask(step, dict.fromkeys(ids, task))


Group = Callable[[Round], dict[int, int]]
Bank = Callable[[Round], Tensor]
Select = Callable[[Round], list[int]]
Send = Callable[[Round, Sequence[int]], dict[int, Task]]
Gather = Callable[[Round, Step], list[Reply]]
Mix = Callable[[Round], "Mixing | Sequence[Mixing]"]
Combine = Callable[[Round], Tensor]
Update = Callable[[Round, Tensor], Tensor]
After = Callable[[Round], None]


@part("bank", "one", shows=NOTHING, gives=(ONE_MODEL,))
def one_model(now: Round) -> Tensor:
    """One common model."""
    return now.models if len(now.models) else now.fleet.start()[None]


@part("send", "everybody", shows=NOTHING, needs=(ONE_MODEL,))
def to_everybody(now: Round, ids: Sequence[int]) -> dict[int, Task]:
    """Everybody gets the common model, row 0."""
    return dict.fromkeys(ids, Task(models=now.models[:1], slots=(0,)))


def each_reply(now: Round, step: Step) -> list[Reply]:
    """The server is shown every client's reply."""
    return now.fleet.ask(step, now.tasks)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A federated method: one answer to each question. Parts are frozen dataclasses or functions; none has state.

    Args:
        name: of the method.
        select: who participates.
        local: what a client does.
        mix: how the models are combined.
        group: who is in which cluster.
        bank: which models exist.
        send: which models go out.
        serve: what a client is given to use, if not what it is sent to train.
        adapt: training that a client does before it uses the row that serves it.
        combine: in place of `mix`, for what no matrix can say (median, trimmed mean).
        update: what the server adds.
        gather: what the server is shown of the replies: each, or only sums of them.
        after: what is remembered of the round, once its rows are final.

    Raises:
        UserError: where a part needs something that no other gives.

    Examples:
        >>> from dataclasses import replace
        >>> from covey.methods.baselines import fedavg
        >>> mine = replace(fedavg(covey.Train(lr=0.1), per_round=5), name="mine")
    """

    name: str
    select: Select
    local: Step
    mix: Mix | None = None
    group: Group | None = None
    bank: Bank = one_model
    send: Send = to_everybody
    serve: Send | None = None
    adapt: Train | None = None
    combine: Combine | None = None
    update: Update | None = None
    gather: Gather = each_reply
    after: tuple[After, ...] = ()

    def __post_init__(self) -> None:
        check_parts(named_parts({f.name: getattr(self, f.name) for f in fields(self)[1:-1]}, self.after))


def one_round(method: Method, state: State, fleet: Fleet) -> State:
    """One round of any method; no single client's answer can end it."""
    now = asked_round(method, state, fleet)
    now.replies = method.gather(now, method.local)
    return answered_round(method, now)


def asked_round(method: Method, state: State, fleet: Fleet) -> Round:
    """The first half of a round: who works, and what each of them is sent."""
    now = open_round(state, fleet)
    if method.group:
        now.groups = without_culprits(now, method.group)
    now.models = without_culprits(now, method.bank)
    now.here = fleet.trainers(now.here)
    now.chosen = as_chosen(method, without_culprits(now, method.select), now.here)
    now.tasks = without_culprits(now, lambda now: method.send(now, sorted(set(now.chosen))))
    return now


def answered_round(method: Method, now: Round) -> State:
    """The second half, once the replies are there: what they make of the bank."""
    check_round(method, now)
    now.models = without_culprits(now, partial(new_rows, method))
    check_bank(method, now)
    return close_round(now)


def new_rows(method: Method, now: Round) -> Tensor:
    """What the replies make of the bank, and what is remembered of it."""
    rows = mixed(method, now)
    if method.update:
        rows = method.update(now, rows)
    now.models = rows
    for keep in method.after:
        keep(now)
    return rows


def with_unseen(seen: Sequence[int], here: Sequence[int]) -> Sequence[int]:
    """Everybody seen so far, then who is new; a fleet without comings and goings is a `range` and stays one."""
    if isinstance(here, range) and (not seen or seen == here):
        return here
    known = seen if isinstance(seen, range) else set(seen)
    new = [i for i in here if i not in known]
    return (*seen, *new) if new else seen


def open_round(state: State, fleet: Fleet) -> Round:
    """Fixes who is here, once per round."""
    number = state.round + 1
    here = fleet.begin(number)
    if not here and not fleet.underway:
        raise SilentRoundError(f"round {number}: no client can be reached")
    return Round(
        number=number,
        fleet=fleet,
        here=here,
        models=state.models,
        groups=dict(state.groups),
        memory=dict(state.memory),
        seen=with_unseen(state.seen, here),
        notes=dict(state.notes),
    )


def mixed(method: Method, now: Round) -> Tensor:
    """The new rows: a matrix over `[old rows; replies]`, or what the method's `combine` makes of them."""
    if method.combine:
        return method.combine(now)
    if method.mix is None:
        raise RunError(f"method {method.name!r} has neither mix nor combine")
    mixing = method.mix(now)
    mixings = [mixing] if isinstance(mixing, Mixing) else mixing
    if not isinstance(mixings, Sequence) or not all(isinstance(one, Mixing) for one in mixings):
        raise RunError(f"method {method.name}: mix gives a {type(mixing).__name__}; it must give a Mixing")
    return now.fleet.combine(mixings, now.models, now.replies, now.seen)


def close_round(now: Round) -> State:
    return State(
        models=now.models,
        groups=now.groups,
        memory=now.memory,
        seen=now.seen,
        notes=now.notes,
        round=now.number,
        worked=now.worked or tuple(reply.id for reply in now.replies),
    )


def empty_state(fleet: Fleet) -> State:
    """The state before the first round: no rows yet, because the method says which models exist."""
    return State(models=torch.zeros(0, fleet.layout.size))


# ---------------------------------------------------------------------------------------------- the loop


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """One number: on what (`split`), of whom (`client`, `group`; -1 = all), which metric."""

    split: str
    metric: str
    value: float
    client: int = -1
    group: int = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundEnd:
    """What watchers are told after every round.

    Args:
        state: the server's state after it.
        method: the method that runs.
        fleet: its clients, with the ledger of all costs.
        measurements: what was measured, if anything.
        rounds: how many are planned.

    Examples:
        >>> def watch(end: covey.RoundEnd) -> None:
        ...     print("round", end.state.round)
        >>> run = covey.run("fedavg", rounds=1, out="runs/watched", progress=False, watchers=[watch])
        round 1
    """

    state: State
    method: Method
    fleet: Fleet
    measurements: Sequence[Measurement]
    rounds: int

    def value(self, split: str, metric: str) -> float | None:
        """A number over all clients and groups, if it was measured."""
        for m in self.measurements:
            if m.split == split and m.metric == metric and m.client == -1 and m.group == -1:
                return m.value
        return None


PATIENCE = 3  # rounds in a row that may pass without an answer

Watcher = Callable[[RoundEnd], None]
# the last one: is this the last round?
Measure = Callable[[Method, State, Fleet, bool], Sequence[Measurement]]


def check_run(method: Any, fleet: Any, rounds: Any) -> None:
    """Checks the arguments before the first round."""
    if not isinstance(method, Method):
        raise UserError(
            f"method is a {type(method).__name__}; it must be a Method, such as fedavg(Train(lr=0.1))"
        )
    if not hasattr(fleet, "ask"):
        raise UserError(
            f"fleet is a {type(fleet).__name__}; it must be a fleet, such as LocalFleet(data, model)"
        )
    if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
        raise UserError(f"rounds is {rounds!r}; allowed: a whole number, at least 1")
    asked, there = (
        getattr(method.select, "per_round", 0),
        len(getattr(getattr(fleet, "data", None), "shares", ())),
    )
    if there and isinstance(asked, int) and asked > there and not getattr(fleet, "is_child", False):
        warn_caller(f"per_round is {asked}, but there are {there} clients: all of them work")


@one_thread()
def run_rounds(
    method: Method,
    fleet: Fleet,
    *,
    rounds: int,
    state: State | None = None,
    measure: Measure | None = None,
    watchers: Sequence[Watcher] = (),
    stop: Callable[[RoundEnd], bool] = lambda _: False,
    patience: int = PATIENCE,
) -> State:
    """The bare loop: runs a method on a fleet, and writes no folder.

    A round in which nobody answers passes with nothing done; after `patience` of them in a row the next one ends the
    run, and so does the last round of all when nobody ever answered.

    Args:
        method: the method.
        fleet: the clients.
        rounds: how many in all.
        state: to continue from; none: a new run.
        measure: what measures after a round, such as `covey.Measuring()`.
        watchers: functions of a `RoundEnd`, called after every round.
        stop: whether a round was the last.
        patience: rounds in a row that may pass without an answer.

    Returns:
        The last state.

    Raises:
        UserError: where an argument is of the wrong kind.
        RunError: where the run cannot continue.

    Examples:
        >>> from covey.methods.baselines import fedavg
        >>> data = covey.federate(covey.load("digits"), partition="dir-class", clients=10, alpha=0.5, seed=0)
        >>> fleet = covey.LocalFleet(data, covey.models.build("mlp", input_shape=(1, 8, 8), outputs=10))
        >>> state = covey.run_rounds(fedavg(covey.Train(), per_round=5), fleet, rounds=2)
        >>> state.round, len(state.models)
        (2, 1)
    """
    check_run(method, fleet, rounds)
    state = state or empty_state(fleet)
    silent = 0
    while state.round < rounds:
        try:
            state, silent = one_round(method, state, fleet), 0
        except RunError as error:
            check_turnout(fleet, state.round + 1)  # a part that fails for want of replies is not the cause
            if not isinstance(error, SilentRoundError):
                raise
            silent += 1
            if silent > patience or (state.round + 1 == rounds and not len(state.models)):
                raise
            state = replace(state, round=state.round + 1, worked=())
        end = RoundEnd(
            state=state,
            method=method,
            fleet=fleet,
            measurements=measure(method, state, fleet, state.round == rounds)
            if measure and len(state.models)
            else (),
            rounds=rounds,
        )
        for watcher in watchers:
            watcher(end)
        if stop(end):
            break
    return state


def served(method: Method, state: State, fleet: Fleet, ids: Sequence[int]) -> dict[int, Task]:
    """The rows each of these clients is given to use under the method's present state.

    A client without labels, which a method that asks about labels cannot place, is given the model of most clients.
    """
    now = Round(
        number=state.round,
        fleet=fleet,
        here=list(ids),
        models=state.models,
        groups=dict(state.groups),
        memory=dict(state.memory),
        seen=state.seen,
        notes={},
    )
    serve = method.serve or method.send
    tasks = serve(now, ids)
    if now.groups and (absent := [i for i in ids if i not in tasks]):
        unlabelled = sorted(set(absent) - set(fleet.trainers(absent)))
        now.groups = now.groups | dict.fromkeys(unlabelled, Counter(now.groups.values()).most_common(1)[0][0])
        tasks = tasks | (serve(now, unlabelled) if unlabelled else {})
    return tasks
