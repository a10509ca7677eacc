"""What every engine does with an ask: name its streams, check the replies, charge what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from covey.core import Reply, Step, Task
from covey.errors import UserError
from covey.fleet.work import Call, Outcome
from covey.ledger import Busy, Cost, Ledger, Problem
from covey.model import Layout


def next_call(
    calls: dict[str, int], step: Step, *, where: str, seed: int, round: int, debug: bool = False
) -> Call:
    """The call of this step, numbered within the round: the same names, and so the same streams, on every engine."""
    number = calls[where + step.kind] = calls.get(where + step.kind, 0) + 1
    names = (where, step.kind, number, "round", round)
    return Call(step=step, seed=seed, round=round, names=names, number=number, debug=debug)


@dataclass(frozen=True, kw_only=True)
class Trip:
    """What it took to ask one client: bytes each way and seconds."""

    down: int
    up: int
    seconds: float


def accept_replies(
    outcomes: Sequence[Outcome],
    *,
    call: Call,
    tasks: Mapping[int, Task],
    trip: Callable[[Outcome], Trip],
    ledger: Ledger,
    layout: Layout,
    deadline: float | None,
    measure: bool,
    child: bool = False,
) -> list[Reply]:
    """Checks the replies, books the cost, moves the clock; returns the replies that count.

    A `child`'s rounds lie within one round of the run: whom it asks is not counted as asked in that round.
    """
    step = call.step
    cost = Cost()
    accepted: list[Reply] = []
    slowest = 0.0
    training = step.kind.startswith("train.") and not measure
    for outcome in outcomes:
        if outcome.mistake:
            raise UserError(outcome.mistake)
        task, reply, client = tasks[outcome.id], outcome.reply, outcome.id
        took = trip(outcome)
        if client >= 0:
            rows_sent = len(task.models) - len(task.held)
            cost.messages += (
                rows_sent if task.source == "peers" else int(rows_sent > 0 or not len(task.models))
            )
            cost.messages += int(reply is not None and not task.keep)
        if task.source == "peers":
            cost.bytes_peer += took.down
        else:
            cost.bytes_down += took.down
        cost.bytes_up += took.up
        lost, refused = outcome.lost, outcome.refused
        if reply is not None and deadline is not None and took.seconds > deadline:
            lost = f"it took {took.seconds:.1f} s, the deadline is {deadline:.1f} s"
        elif reply is not None:
            refused = check_reply(reply, client, step, task, layout)
        if lost or refused:
            problem = Problem(client=client, kind=step.kind, round=call.round, reason=lost or refused)
            ledger.note_problem("lost" if lost else "refused", problem)
            slowest = max(slowest, took.seconds if refused else deadline or 0.0)
            continue
        assert reply is not None
        accepted.append(reply)
        slowest = max(slowest, took.seconds)
        if training and client >= 0:
            ledger.busy.append(Busy(client=client, start=ledger.clock, seconds=took.seconds))
        if "epsilon" in reply.stats:
            ledger.epsilon[client] = float(reply.stats["epsilon"])
    if training and not child:
        ledger.asked += len(tasks)
        ledger.replied += len(accepted)
    cost.seconds = 0.0 if measure else slowest
    ledger.charge(step.kind, cost, measure=measure)
    return accepted


def check_reply(reply: Reply, client: int, step: Step, task: Task, layout: Layout) -> str:
    """Why a reply cannot be used, or an empty string."""
    if reply.id != client:
        return f"it says it is from client {reply.id}"
    if reply.size < 0:
        return f"its number of samples is {reply.size}"
    if reply.slot not in task.slots and (task.slots or step.kind.startswith("train.")):
        return f"its row is said to come from slot {reply.slot}, which it was not sent"
    for name, value in reply.stats.items():
        # A summary without noise spends an infinite epsilon; every other number must be one.
        if isinstance(value, float) and not math.isfinite(value) and name != "epsilon":
            return f"its {name} is {value}"
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.isfinite(value).all():
            return f"its {name} holds NaN or infinity"
    if reply.vector is None:
        return "a trained row is missing" if step.kind.startswith("train.") else ""
    if reply.vector.dtype != torch.float32:
        return f"its row is of {reply.vector.dtype}, not torch.float32"
    if step.kind.startswith("train.") and tuple(reply.vector.shape) != (layout.size,):
        return f"its row has shape {tuple(reply.vector.shape)}, not ({layout.size},)"
    # A finite sum has only finite terms; the long way is for sums that overflow.
    if not math.isfinite(float(reply.vector.sum())) and not bool(torch.isfinite(reply.vector).all()):
        return "its row holds NaN or infinity"
    return ""
