"""The books of a fleet: what every engine does with an ask."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch

from covey.core import Reply, Step, Task
from covey.core.checks import HeardReplies
from covey.core.ledger import Busy, Cost, Ledger, Problem
from covey.core.reply_schema import Known, objection
from covey.errors import UserError
from covey.fleet.direction import compared_columns, note_directions, refused_for_direction
from covey.fleet.guard import Guard, lengths_of
from covey.fleet.odd import note_conduct
from covey.fleet.work import Call, Outcome
from covey.parts.mix.combine import Each, one_by_one
from covey.parts.steps.evaluate import no_scores
from covey.parts.steps.private import Quiet
from covey.training.rows import Layout


@dataclass(frozen=True, kw_only=True)
class Trip:
    """What it took to ask one client: bytes each way and seconds."""

    down: int = 0
    up: int = 0
    seconds: float = 0.0


@dataclass(kw_only=True, eq=False)
class Bookkeeping:
    """What every fleet does with an ask, whatever is behind it: number the call, check the replies, book the cost.

    Args:
        layout: of the model's rows.
        known: what the server knows of a client, by which its answers are checked.
        guard: what a client's update may be, compared with the others'.
        seed: of the run.
        name: run, or the name of a child, whose rounds all lie within one round of the run: it books costs, but opens
            no round in the ledger, and whom it asks is not counted as asked in that round.
        debug: whether a client's error is raised in place.
        ledger: all costs, which a child shares with its parent.
        answers: what a part of the method was told.
        each: calls a function for each of many replies, with as many workers as there are.
    """

    layout: Layout
    known: Callable[[int], Known]
    guard: Guard
    seed: int
    name: str = "run"
    debug: bool = False
    ledger: Ledger = field(default_factory=Ledger)
    answers: HeardReplies = field(default_factory=HeardReplies)
    each: Each = one_by_one
    round: int = 0
    calls: dict[str, int] = field(default_factory=dict)

    @property
    def is_child(self) -> bool:
        """Whether its rounds lie within one round of the run."""
        return self.name != "run"

    def become_child(self, parent: Self, name: str) -> None:
        """Makes these the books of the method's own model: the same ledger, streams of its own."""
        self.name, self.ledger = f"{parent.name}/{name}", parent.ledger

    def open(self, round: int) -> None:
        """Begins a round."""
        self.round, self.calls = round, {}
        if not self.is_child:
            self.ledger.open()

    def call(self, step: Step, *, measure: bool = False) -> Call:
        """The call of this step, numbered within the round: the same names, and so the same streams, everywhere."""
        where = "measure" if measure else self.name
        number = self.calls[where + step.kind] = self.calls.get(where + step.kind, 0) + 1
        return Call(
            step=step,
            seed=self.seed,
            round=self.round,
            names=(where, step.kind, number, "round", self.round),
            number=number,
            debug=self.debug,
        )

    def accept(
        self,
        call: Call,
        tasks: Mapping[int, Task],
        outcomes: Sequence[Outcome],
        trips: Mapping[int, Trip],
        *,
        deadline: float | None = None,
        measure: bool = False,
    ) -> list[Reply]:
        """Checks the replies, books the cost, moves the clock; returns the replies that count."""
        for outcome in outcomes:
            if outcome.mistake:
                raise UserError(outcome.mistake)
        training = call.step.kind.startswith("train.") and not measure
        late = _too_late(outcomes, trips, deadline)
        outcomes = [_unpacked(outcome, call.step, tasks[outcome.id], self.layout) for outcome in outcomes]
        in_time = {o.id: o.reply for o in outcomes if o.reply is not None and o.id not in late}
        refusals, shortened = self._checked(call, tasks, in_time, training)
        cost, accepted = Cost(), list[Reply]()
        for outcome in outcomes:
            client, trip = outcome.id, trips[outcome.id]
            charge_trip(cost, tasks[client], outcome.reply, trip, of_server=client < 0)
            lost, refused = late.get(client, outcome.lost), refusals.get(client, outcome.refused)
            self._note(call.step, outcome, refused, training)
            if lost or refused or outcome.reply is None:
                problem = Problem(
                    client=client, kind=call.step.kind, round=call.round, reason=lost or refused
                )
                self.ledger.note_problem("lost" if lost else "refused", problem)
                cost.seconds = max(cost.seconds, trip.seconds if refused else deadline or 0.0)
                continue
            accepted.append(shortened.get(client, outcome.reply))
            cost.seconds = max(cost.seconds, trip.seconds)
            if training and client >= 0:
                self.ledger.busy.append(Busy(client=client, start=self.ledger.clock, seconds=trip.seconds))
        if training and not self.is_child:
            self.ledger.asked += len(tasks)
            self.ledger.replied += len(accepted)
        if measure:
            cost.seconds = 0.0
        self.ledger.charge(call.step.kind, cost, measure=measure)
        return accepted

    def _checked(
        self, call: Call, tasks: Mapping[int, Task], replies: Mapping[int, Reply], training: bool
    ) -> tuple[dict[int, str], dict[int, Reply]]:
        """Why each reply cannot be used (an empty text: it can), and those of which only a part counts, by client."""
        refusals = {
            client: check_reply(reply, client, call.step, tasks[client], self.layout, self.known(client))
            for client, reply in replies.items()
        }
        if not training:
            return refusals, {}
        usable = [reply for client, reply in replies.items() if client >= 0 and not refusals[client]]
        too_long, shortened = self._outliers(usable, call, tasks)
        return refusals | too_long, shortened

    def _note(self, step: Step, outcome: Outcome, refused: str, training: bool) -> None:
        """Books what a client's answer says of the client, whether it counts or not."""
        reply, client = outcome.reply, outcome.id
        if training and not self.is_child:
            self.ledger.failed_in_round += outcome.failed
            if refused and reply is not None:
                self.ledger.losses_refused[client] = loss_of(reply)
        if reply is not None and not refused and "epsilon" in reply.stats:  # it was told, in time or not
            whole = bool(getattr(step, "whole_client", False))
            self.ledger.tell(client, float(reply.stats["epsilon"]), kind=step.kind, whole=whole)

    def _outliers(
        self, replies: Sequence[Reply], call: Call, tasks: Mapping[int, Task]
    ) -> tuple[dict[int, str], dict[int, Reply]]:
        """Whose update is too long for the others', in words, and whose is shortened; who stands out is booked."""
        if not replies:
            return {}, {}
        directions = [name for name, stat in call.step.expects(Known()).items() if stat.direction]
        columns = compared_columns(self.layout.trainable, call)
        lengths = lengths_of(replies, tasks, self.layout, directions, columns, self.each)
        refusals = {replies[place].id: why for place, why in self.guard.too_long(lengths).items()}
        place, times = lengths.stands_out()
        if replies[place].id not in refusals and type(call.step) is not Quiet:  # of whom sums alone may tell
            self.ledger.note_longest(call.round, replies[place].id, times)
        if self.guard.norm:
            compared = note_directions(replies, tasks, lengths, self.ledger)
            refusals = refused_for_direction(replies, compared, self.ledger) | refusals
        note_conduct(replies, lengths, self.guard, self.ledger, refusals)
        shortened = self.guard.shortened(replies, tasks, lengths, self.layout)
        return refusals, {i: reply for i, reply in shortened.items() if i not in refusals}


class WithBooks:
    """What every fleet has of its books."""

    books: Bookkeeping

    @property
    def ledger(self) -> Ledger:
        return self.books.ledger

    @property
    def is_child(self) -> bool:
        return self.books.is_child

    @property
    def answers(self) -> HeardReplies:
        return self.books.answers

    def ask(
        self, step: Step, tasks: Mapping[int, Task], *, deadline: float | None = None, measure: bool = False
    ) -> list[Reply]:
        """Sends the tasks and gives the replies by ascending id; lost and refused ones are absent."""
        return self.answers.once(step, tasks, lambda: self._ask(step, tasks, deadline, measure))

    def _ask(
        self, step: Step, tasks: Mapping[int, Task], deadline: float | None, measure: bool
    ) -> list[Reply]:
        raise NotImplementedError


def charge_trip(cost: Cost, task: Task, reply: Reply | None, trip: Trip, *, of_server: bool) -> None:
    """Adds the messages and bytes of one client; what the server asks itself is no message."""
    if not of_server:
        told = task.rows > 0 or not len(task.models)
        cost.messages += task.rows if task.source == "peers" else int(told)
        cost.messages += int(reply is not None and (not task.keep or reply.sent(task) > 0))
    if task.source == "peers":
        cost.bytes_peer += trip.down
    else:
        cost.bytes_down += trip.down
    cost.bytes_up += trip.up


def _unpacked(outcome: Outcome, step: Step, task: Task, layout: Layout) -> Outcome:
    """The outcome with its reply as the server uses it; refused where that cannot be read."""
    if outcome.reply is None:
        return outcome
    try:
        reply = step.unpacked(outcome.reply, task, layout)
        return outcome if reply is outcome.reply else replace(outcome, reply=reply)
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
    return step.misfit(reply, layout, known) if training and client >= 0 else ""


def loss_of(reply: Reply) -> float:
    """The loss of a training, NaN where its row is not finite; 0 where the reply holds none."""
    if reply.vector is not None and not bool(torch.isfinite(reply.vector).all()):
        return math.nan
    loss = reply.stats.get("loss")
    return float(loss) if isinstance(loss, int | float) else 0.0


def is_silent(step: Step, task: Task, reply: Reply) -> bool:
    """Whether a reply rightly tells nothing: it has no samples to judge by, or no news since it last told."""
    no_samples = step.kind.startswith("evaluate.") and not reply.size
    return not reply.stats and (no_samples or "tolerance" in task.args)
