"""What the clients of a simulation use in a round: made anew, with the bits that a measurement of that round had."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from torch import Tensor

from covey.core import Task
from covey.fleet.local import LocalFleet
from covey.fleet.work import Call, jobs_of
from covey.parts.steps.served import ADAPTING, Serving, TakeServed, as_sent

TOGETHER_BYTES = 64_000_000  # of rows that are made before they are taken,
TOGETHER = 4000  # of at most this many clients: what surrounds a row takes some kilobytes, too


class Used(NamedTuple):
    """The row that a client uses, and the slot that it came from."""

    client: int
    slot: int
    row: Tensor


def rows_in_use(
    fleet: LocalFleet, serving: Serving, tasks: Mapping[int, Task], round: int, *, make: bool = True
) -> Iterator[Used]:
    """What each of these clients uses under its task; one that fails is left out. Nothing is booked, no state changes.

    Without `make`, only what is used as it was sent.
    """
    made: dict[int, Task] = {}
    for client, task in tasks.items():
        if as_sent(task, serving, fleet.states.get(client), fleet.layout):
            yield Used(client, task.slots[0], task.models[0])
        else:
            made[client] = task
    call = Call(
        step=TakeServed(serving=serving), seed=fleet.seed, round=round, names=(*ADAPTING, "round", round)
    )
    clients, together = (
        list(made) if make else [],
        min(TOGETHER, max(1, TOGETHER_BYTES // (4 * fleet.layout.size))),
    )
    for start in range(0, len(clients), together):
        some = clients[start : start + together]
        sizes = {i: sum(fleet.client_data.sizes(i)) for i in some}
        outcomes = fleet.executor(call, jobs_of([[i] for i in some], made, fleet.states, sizes))
        for outcome in sorted(outcomes, key=lambda outcome: outcome.id):
            if outcome.reply is not None and outcome.reply.vector is not None:
                yield Used(outcome.id, outcome.reply.slot, outcome.reply.vector)
