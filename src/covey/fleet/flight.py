"""A reply on its way: trained already on this machine, but not yet there on the virtual clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from covey.core.codec import reply_from_plain, reply_to_plain, task_to_plain
from covey.core.messages import Task
from covey.fleet.bookkeeping import Trip
from covey.fleet.work import Outcome


@dataclass(frozen=True, kw_only=True, eq=False)
class Flight:
    """What was sent in which round, what becomes of it, and when it arrives on the clock."""

    sent: int
    arrives: float
    task: Task
    outcome: Outcome
    trip: Trip

    def rest_of_trip(self, clock: float) -> Trip:
        """What it costs, with the seconds that are left of its way."""
        return replace(self.trip, seconds=max(0.0, self.arrives - clock))

    def plain(self) -> dict[str, Any]:
        """Plain values and arrays, as a checkpoint keeps them."""
        reply = self.outcome.reply
        return {
            "sent": self.sent,
            "arrives": self.arrives,
            "task": task_to_plain(self.task),
            "reply": None if reply is None else reply_to_plain(reply),
            "client": self.outcome.id,
            "why": [self.outcome.lost, self.outcome.refused],
            "failed": self.outcome.failed,
            "trip": asdict(self.trip),
        }

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Flight:
        """The flight that `plain` came from."""
        lost, refused = plain["why"]
        reply = None if plain["reply"] is None else reply_from_plain(plain["reply"])
        outcome = Outcome(id=plain["client"], reply=reply, lost=lost, refused=refused, failed=plain["failed"])
        return Flight(
            sent=plain["sent"],
            arrives=plain["arrives"],
            task=Task(**plain["task"]),
            outcome=outcome,
            trip=Trip(**plain["trip"]),
        )
