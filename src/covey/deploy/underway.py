"""A server that continues as soon as enough sites have answered: what the others were sent, and what has come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from covey.core.messages import Reply, Task
from covey.deploy.outcomes import book_unheard, outcome_of
from covey.deploy.transport import POLL, READING, Transport
from covey.fleet.bookkeeping import Trip
from covey.fleet.work import Call, Outcome

if TYPE_CHECKING:
    from covey.deploy.fleet import SiteFleet


@dataclass(frozen=True, kw_only=True, eq=False)
class Sent:
    """A task at a site: of which round, as which message, since when (on the monotonic clock), for how long."""

    client: int
    round: int
    task: Task
    number: str
    bytes: int
    since: float
    limit: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Landed:
    """What became of a task, and what it took."""

    sent: Sent
    outcome: Outcome
    trip: Trip


@dataclass
class Underway:
    """The tasks that sites work on, by client, and the answers that came before they were asked for."""

    sent: dict[int, Sent] = field(default_factory=dict)
    come: list[Landed] = field(default_factory=list)

    def clients(self) -> list[int]:
        """Who must not be asked anything else."""
        return sorted({*self.sent, *(one.sent.client for one in self.come)})

    def look(self, transport: Transport, most: int) -> None:
        """Reads what has come; a site whose time is up is lost."""
        if not self.sent:
            return
        late = time.monotonic()  # before the look, so that nothing that is there is missed
        by_number = {one.number: one for one in self.sent.values()}
        for number, response in transport.collect(list(by_number), most=most, until=late + READING).items():
            one = by_number.pop(number)
            took = min(time.monotonic() - one.since, one.limit)
            trip = Trip(down=one.bytes, up=len(response.answer), seconds=took)
            self.land(one, outcome_of(one.client, response), trip)
        for one in by_number.values():
            if late > one.since + one.limit:
                why = f"no reply in {one.limit:.1f} s"
                trip = Trip(down=one.bytes, up=0, seconds=one.limit)
                self.land(one, Outcome(id=one.client, lost=why), trip)

    def land(self, one: Sent, outcome: Outcome, trip: Trip) -> None:
        del self.sent[one.client]
        self.come.append(Landed(sent=one, outcome=outcome, trip=trip))

    def first(self, count: int, begun: float, heard: Callable[[Landed], None]) -> list[Landed]:
        """The first `count` that have come, by ascending client, with the seconds of the clock since `begun`.

        The clock continued while they worked: what passed before `begun` is booked already.
        """
        taken, self.come = self.come[:count], self.come[count:]
        passed = time.monotonic() - begun
        for one in taken:
            heard(one)
        return sorted(
            (replace(one, trip=replace(one.trip, seconds=min(one.trip.seconds, passed))) for one in taken),
            key=lambda one: one.sent.client,
        )


Arrivals = tuple[list[Reply], dict[int, Task], dict[int, int]]


def first_arrivals(fleet: SiteFleet, call: Call, tasks: Mapping[int, Task], count: int) -> Arrivals:
    """Sends the tasks and waits for the first `count` answers to these and to earlier ones.

    The replies that count, the tasks that they answer, and in which round each of these was sent.
    """
    begun, landed = time.monotonic(), depart(fleet, call, tasks, fleet.deadline, fleet.in_flight)
    replies = accepted(fleet, call, landed)

    def heard(one: Landed) -> None:
        if one.sent.client in fleet.registry.sites:
            fleet.hear(one)
            if one.outcome.reply is not None:  # how long it took is remembered
                fleet.note_pace(call.step, one.sent.client, one.trip.seconds)

    while len(replies) < count and fleet.underway:
        fleet.in_flight.look(fleet.transport, fleet.most_bytes(tasks))
        fresh = fleet.in_flight.first(count - len(replies), begun, heard)
        if not fresh:
            time.sleep(POLL)
            continue
        replies += accepted(fleet, call, fresh)
        landed += fresh
        begun = time.monotonic()
    replies.sort(key=lambda reply: reply.id)
    asked = {one.sent.client: one.sent for one in landed}
    return replies, {i: one.task for i, one in asked.items()}, {i: one.round for i, one in asked.items()}


def depart(
    fleet: SiteFleet, call: Call, tasks: Mapping[int, Task], limit: float, flight: Underway
) -> list[Landed]:
    """Sends the tasks, which have `limit` seconds; gives those that could not be sent, which have landed already."""
    fleet.transport.expect(fleet.most_bytes(tasks))
    there = {i: site for i in tasks if (site := fleet.registry.present(i))}
    fleet.status.asking(call.round, call.step.kind, {i: site.name for i, site in there.items()})
    since = time.monotonic()
    waiting, sizes = fleet.send(call, tasks, there, limit)
    number_of = {node: number for number, node in waiting.items()}
    stayed = []
    for client, task in tasks.items():
        node = there[client].node if client in there else -1
        one = Sent(
            client=client,
            round=call.round,
            task=task,
            number=number_of.get(node, ""),
            bytes=sizes.get(node, 0),
            since=since,
            limit=limit,
        )
        if one.number:
            flight.sent[client] = one
            continue
        why = "the message could not be sent" if client in there else "it is not connected"
        stayed.append(Landed(sent=one, outcome=Outcome(id=client, lost=why), trip=Trip()))
    return stayed


def accepted(fleet: SiteFleet, call: Call, landed: Sequence[Landed]) -> list[Reply]:
    """The answers that count; what was asked is booked, whether it was answered or not."""
    tasks = {one.sent.client: one.sent.task for one in landed}
    trips = {one.sent.client: one.trip for one in landed}
    outcomes = fleet.schemas.checked(call.step, tasks, [one.outcome for one in landed])
    replies = fleet.books.accept(call, tasks, outcomes, trips)
    book_unheard(fleet.ledger, call.step, {reply.id for reply in replies}, set(tasks))
    return replies
