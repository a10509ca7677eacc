"""A server that continues as soon as enough sites have answered, while the others still work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from covey.core.messages import Reply, Task
from covey.core.protocols import Step
from covey.deploy.outcomes import book_unheard
from covey.deploy.transport import POLL
from covey.deploy.underway import Landed, Sent
from covey.fleet.bookkeeping import Trip
from covey.fleet.work import Call, Outcome

if TYPE_CHECKING:
    from covey.deploy.fleet import SiteFleet

Arrivals = tuple[list[Reply], dict[int, Task], dict[int, int]]


def first_arrivals(
    fleet: SiteFleet, call: Call, tasks: Mapping[int, Task], count: int, most: int
) -> Arrivals:
    """Sends the tasks and waits for the first `count` answers, of at most so many bytes, to these and to earlier ones.

    The replies that count, the tasks that they answer, and in which round each of these was sent.
    """
    fleet.transport.expect(most)
    begun, landed = time.monotonic(), list(depart(fleet, call, tasks))
    replies = accepted(fleet, call, landed)
    while len(replies) < count and fleet.underway:
        fleet.in_flight.look(fleet.transport, most)
        fresh = fleet.in_flight.first(count - len(replies), begun, partial(heard, fleet, call.step))
        if not fresh:
            time.sleep(POLL)
            continue
        replies += accepted(fleet, call, fresh)
        landed += fresh
        begun = time.monotonic()
    replies.sort(key=lambda reply: reply.id)
    asked = {one.sent.client: one.sent for one in landed}
    return replies, {i: one.task for i, one in asked.items()}, {i: one.round for i, one in asked.items()}


def depart(fleet: SiteFleet, call: Call, tasks: Mapping[int, Task]) -> Iterator[Landed]:
    """Sends the tasks; those that could not be sent have landed already."""
    there = {i: site for i in tasks if (site := fleet.registry.present(i))}
    fleet.status.asking(call.round, call.step.kind, {i: site.name for i, site in there.items()})
    waiting, sizes = fleet.send(call, tasks, there, fleet.deadline)
    number_of = {node: number for number, node in waiting.items()}
    for client, task in tasks.items():
        node = there[client].node if client in there else -1
        one = Sent(
            client=client,
            round=call.round,
            task=task,
            number=number_of.get(node, ""),
            bytes=sizes.get(node, 0),
            since=time.monotonic(),
            limit=fleet.deadline,
        )
        if one.number:
            fleet.in_flight.add([one])
            continue
        why = "the message could not be sent" if client in there else "it is not connected"
        yield Landed(sent=one, outcome=Outcome(id=client, lost=why), trip=Trip())


def accepted(fleet: SiteFleet, call: Call, landed: Sequence[Landed]) -> list[Reply]:
    """The answers that count; what was asked is booked, whether it was answered or not."""
    tasks = {one.sent.client: one.sent.task for one in landed}
    trips = {one.sent.client: one.trip for one in landed}
    outcomes = fleet.schemas.checked(call.step, tasks, [one.outcome for one in landed])
    replies = fleet.books.accept(call, tasks, outcomes, trips)
    book_unheard(fleet.ledger, call.step, {reply.id for reply in replies}, set(tasks))
    return replies


def heard(fleet: SiteFleet, step: Step, one: Landed) -> None:
    """A site whose time was up counts as quiet until it is greeted again; how long the others took is remembered."""
    site = fleet.registry.sites.get(one.sent.client)
    if site is None:
        return
    site.quiet = site.quiet or (one.trip.up == 0 and bool(one.outcome.lost))
    fleet.tell(one.outcome, site.name, one.trip.seconds)
    if one.outcome.reply is not None:
        fleet.note_pace(step, one.sent.client, one.trip.seconds)
