"""What every engine does with an ask: name its streams, check the replies, charge what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from covey.core.ledger import Busy, Cost, Ledger, Problem
from covey.core.reply_schema import Known, objection
from covey.core.round import Reply, Step, Task
from covey.errors import UserError
from covey.fleet.guard import Guard, lengths_of
from covey.fleet.odd import note_conduct
from covey.fleet.work import Call, Outcome
from covey.parts.steps.evaluate import no_scores
from covey.training.rows import Layout


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


def by_client(trips: Mapping[int, Trip], outcome: Outcome) -> Trip:
    """The trip of an outcome's client."""
    return trips[outcome.id]


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
    known: Callable[[int], Known] = lambda _: Known(),
    guard: Guard = Guard(),
) -> list[Reply]:
    """Checks the replies, books the cost, moves the clock; returns the replies that count.

    A `child`'s rounds lie within one round of the run: whom it asks is not counted as asked in that round. `known` is
    what the server knows of a client, `guard` what its update may be beside the others'.
    """
    step = call.step
    cost = Cost()
    accepted: list[Reply] = []
    shortened: dict[int, Reply] = {}
    slowest = 0.0
    training = step.kind.startswith("train.") and not measure
    for outcome in outcomes:
        if outcome.mistake:
            raise UserError(outcome.mistake)
    trips = {outcome.id: trip(outcome) for outcome in outcomes}
    late = _too_late(outcomes, trips, deadline)
    outcomes = [_unpacked(outcome, step, tasks[outcome.id], layout) for outcome in outcomes]
    refusals = {
        o.id: check_reply(o.reply, o.id, step, tasks[o.id], layout, known(o.id))
        for o in outcomes
        if o.reply is not None and o.id not in late
    }
    if training:
        usable = [o.reply for o in outcomes if o.reply is not None and refusals.get(o.id) == ""]
        too_long, shortened = _outliers(
            [reply for reply in usable if reply.id >= 0], call, tasks, layout, ledger, guard
        )
        refusals |= too_long
    for outcome in outcomes:
        task, reply, client = tasks[outcome.id], outcome.reply, outcome.id
        took = trips[client]
        if client >= 0:
            rows_sent = len(task.models) - len(task.held)
            cost.messages += (
                rows_sent if task.source == "peers" else int(rows_sent > 0 or not len(task.models))
            )
            cost.messages += int(reply is not None and (not task.keep or reply.sent(task) > 0))
        if task.source == "peers":
            cost.bytes_peer += took.down
        else:
            cost.bytes_down += took.down
        cost.bytes_up += took.up
        lost, refused = late.get(client, outcome.lost), refusals.get(client, outcome.refused)
        if training and not child:
            ledger.failed_in_round += outcome.failed
            if refused and reply is not None:
                ledger.losses_refused[client] = loss_of(reply)
        if reply is not None and not refused and "epsilon" in reply.stats:  # it was told, in time or not
            ledger.tell(client, float(reply.stats["epsilon"]), kind=step.kind, whole=is_whole(step))
        if lost or refused:
            problem = Problem(client=client, kind=step.kind, round=call.round, reason=lost or refused)
            ledger.note_problem("lost" if lost else "refused", problem)
            slowest = max(slowest, took.seconds if refused else deadline or 0.0)
            continue
        assert reply is not None
        accepted.append(shortened.get(client, reply))
        slowest = max(slowest, took.seconds)
        if training and client >= 0:
            ledger.busy.append(Busy(client=client, start=ledger.clock, seconds=took.seconds))
    if training and not child:
        ledger.asked += len(tasks)
        ledger.replied += len(accepted)
    cost.seconds = 0.0 if measure else slowest
    ledger.charge(step.kind, cost, measure=measure)
    return accepted


def _unpacked(outcome: Outcome, step: Step, task: Task, layout: Layout) -> Outcome:
    """The outcome with its reply as the server uses it; refused where that cannot be read."""
    if outcome.reply is None:
        return outcome
    try:
        return replace(outcome, reply=step.unpacked(outcome.reply, task, layout))
    except Exception as error:  # whatever a stranger sent
        return replace(
            outcome, reply=None, refused=f"its row cannot be read ({type(error).__name__}: {error})"
        )


def _too_late(
    outcomes: Sequence[Outcome], trips: Mapping[int, Trip], deadline: float | None
) -> dict[int, str]:
    """Whose reply came after the deadline, in words."""
    return {
        o.id: f"it took {trips[o.id].seconds:.1f} s, the deadline is {deadline:.1f} s"
        for o in outcomes
        if o.reply is not None and deadline is not None and trips[o.id].seconds > deadline
    }


def _outliers(
    replies: Sequence[Reply],
    call: Call,
    tasks: Mapping[int, Task],
    layout: Layout,
    ledger: Ledger,
    guard: Guard,
) -> tuple[dict[int, str], dict[int, Reply]]:
    """Whose update is too long beside the others', in words, and whose is shortened; who stands out is remembered."""
    if not replies:
        return {}, {}
    expected = call.step.expects(Known())
    directions = [name for name, stat in expected.items() if stat.direction]
    lengths = lengths_of(replies, tasks, layout, directions)
    refusals = {replies[place].id: why for place, why in guard.too_long(lengths).items()}
    place, times = lengths.stands_out()
    if replies[place].id not in refusals:
        ledger.note_longest(call.round, replies[place].id, times)
    note_conduct(replies, tasks, lengths, layout, guard, ledger)
    shortened = guard.shortened(replies, tasks, lengths, layout)
    return refusals, {i: reply for i, reply in shortened.items() if i not in refusals}


def check_reply(
    reply: Reply, client: int, step: Step, task: Task, layout: Layout, known: Known = Known()
) -> str:
    """Why a reply cannot be used, or an empty string."""
    training = step.kind.startswith("train.")
    if reply.id != client:
        return f"it says it is from client {reply.id}"
    if reply.size < 0:
        return f"its number of samples is {reply.size}"
    if client >= 0 and reply.size > (known.train if training else known.most):
        return f"its number of samples is {reply.size}; it has {known.train if training else known.most}"
    if reply.slot not in task.slots and (task.slots or training):
        return f"its row is said to come from slot {reply.slot}, which it was not sent"
    known = replace(known, models=len(task.models), row=layout.size, learned=layout.trainable)
    expected = {} if is_silent(step, task, reply) else step.expects(known)
    if why := objection(reply.stats, expected):
        return why
    # what an evaluation tells beyond what its step names are numbers that are averaged over clients
    others = {name: value for name, value in reply.stats.items() if name not in expected}
    if step.kind.startswith("evaluate.") and (why := no_scores(others)):
        return why
    if reply.vector is None:
        return "a trained row is missing" if training else ""
    if reply.vector.dtype != torch.float32:
        return f"its row is of {reply.vector.dtype}, not torch.float32"
    if training and tuple(reply.vector.shape) != (layout.size,):
        return f"its row has shape {tuple(reply.vector.shape)}, not ({layout.size},)"
    # A finite sum has only finite terms; the long way is for sums that overflow.
    if not math.isfinite(float(reply.vector.sum())) and not bool(torch.isfinite(reply.vector).all()):
        return "its row holds NaN or infinity"
    for name, columns in layout.variances.items() if training else ():
        if (least := float(reply.vector[columns].min())) < 0:
            return f"its {name} holds {least:.3g}; a variance is at least 0"
    return ""


def is_whole(step: Step) -> bool:
    """Whether an answer's epsilon is for all data of the client, and not for one sample of them."""
    return bool(getattr(step, "whole_client", False))


def loss_of(reply: Reply) -> float:
    """The loss of a training, NaN where its row is not finite; 0 where it says nothing that can be one."""
    if reply.vector is not None and not bool(torch.isfinite(reply.vector).all()):
        return math.nan
    loss = reply.stats.get("loss")
    return float(loss) if isinstance(loss, int | float) else 0.0


def is_silent(step: Step, task: Task, reply: Reply) -> bool:
    """Whether a reply rightly tells nothing: it has no samples to judge by, or no news since it last told."""
    no_samples = step.kind.startswith("evaluate.") and not reply.size
    return not reply.stats and (no_samples or "tolerance" in task.args)
