"""Which simulated clients have the frozen part of the model: each is sent it once, before its first row."""

from collections.abc import Mapping, Sequence
from typing import Any

from covey.core.ledger import Cost, Ledger
from covey.core.messages import Task
from covey.errors import UserError
from covey.fleet.profiles import Device
from covey.training.frozen import Frozen

SEND_FROZEN = "send.frozen"  # in the ledger


class Holders:
    """The clients that have it; where nothing is frozen, nobody needs it."""

    def __init__(self, frozen: Frozen) -> None:
        self.frozen = frozen
        self.clients: set[int] = set()

    def send(
        self, tasks: Mapping[int, Task], machines: Sequence[Device], ledger: Ledger, *, wait: bool
    ) -> dict[int, float]:
        """Books it for everybody who is sent a row and lacks it; gives the seconds that it takes each of them.

        With `wait` the clock moves until the slowest of them has it.
        """
        if not self.frozen.tensors:
            return {}
        new = [i for i, task in tasks.items() if i >= 0 and len(task.models) and i not in self.clients]
        seconds = {i: 8e-6 * self.frozen.nbytes / machines[i].down for i in new}
        if new:
            self.clients |= set(new)
            cost = Cost(messages=len(new), bytes_down=len(new) * self.frozen.nbytes)
            cost.seconds = max(seconds.values()) if wait else 0.0
            ledger.charge(SEND_FROZEN, cost)
        return seconds

    def save(self) -> dict[str, Any]:
        """For an exact resume; nothing where nothing is frozen."""
        if not self.frozen.tensors:
            return {}
        return {"frozen": {"digest": self.frozen.digest, "clients": sorted(self.clients)}}

    def load(self, saved: Mapping[str, Any]) -> None:
        """What `save` told; another frozen part than the run's is a `UserError`."""
        kept = saved.get("frozen", {"digest": "", "clients": []})
        same_frozen(kept["digest"], self.frozen)
        self.clients = set(kept["clients"])


def same_frozen(digest: str, frozen: Frozen) -> None:
    """Refuses to continue with another frozen part than a run began with."""
    if digest != frozen.digest:
        raise UserError(
            "the frozen part of the model is not the one that the run began with: "
            f"{frozen.digest[:12] or 'nothing'}, and not {digest[:12] or 'nothing'}"
        )
