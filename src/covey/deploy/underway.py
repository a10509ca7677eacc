"""Sites that still work while the server continues: what each was sent, and what has come back of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from covey.core.messages import Task
from covey.deploy.outcomes import outcome_of
from covey.deploy.transport import Transport
from covey.fleet.bookkeeping import Trip
from covey.fleet.work import Outcome

READING = 10.0  # seconds in which answers that have come are read


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

    def add(self, tasks: Iterable[Sent]) -> None:
        self.sent |= {one.client: one for one in tasks}

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
