"""What happens at a worker: one job is one client's task (or, for evaluation, several clients that share a row)."""

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from covey.core.messages import Reply, Task, wrong_type
from covey.core.protocols import Account, Client, Step
from covey.errors import Refused, UserError
from covey.fleet.client_data import ClientData
from covey.streams import stream
from covey.training.bench import Bench
from covey.training.rows import Layout

BUNDLE_SAMPLES = 4000  # samples evaluated together; fixed, so that no result depends on the number of workers


@dataclass(frozen=True, kw_only=True)
class Call:
    """What one `ask` has in common for all its clients."""

    step: Step
    seed: int
    round: int
    names: tuple[str | int, ...]  # of the random stream; the client's id comes last
    number: int = 1  # of this step's calls in the round
    debug: bool = False
    live: bool = False  # on a real device
    account: Account | None = None  # of a real device
    paces: Mapping[int, float] = field(
        default_factory=dict
    )  # of simulated devices, where training may end early


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """Some clients' tasks and states; one client unless the step can do many at once."""

    ids: tuple[int, ...]
    tasks: tuple[Task, ...]
    states: tuple[dict[str, Any], ...]
    weight: float = 0.0  # samples, to start the longest first


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """What became of one client's task: a reply or a reason, and the client's state afterwards."""

    id: int
    reply: Reply | None = None
    lost: str = ""
    refused: str = ""
    mistake: str = ""  # a user's mistake, found only on the device: ends the run
    failed: bool = False  # it is lost because the step raised an error
    state: dict[str, Any] = field(default_factory=dict)


class Executor(Protocol):
    """What gets jobs done: here and now, in threads, in processes or on a cluster, with bit-identical results."""

    def __call__(self, call: Call, jobs: Sequence[Job]) -> list[Outcome]:
        """The outcomes of all jobs, in whatever order they come."""
        ...

    def close(self) -> None:
        """Ends the workers, if it has any."""
        ...


def do(call: Call, job: Job, client_data: ClientData, bench: Bench) -> list[Outcome]:
    """Runs a job; an exception becomes a lost reply, unless debugging."""
    states = [dict(state) for state in job.states]
    clients = [
        client_of(call, i, state, client_data, bench) for i, state in zip(job.ids, states, strict=True)
    ]
    try:
        if len(clients) > 1:
            replies = call.step.many(clients, job.tasks[0].models[0], job.tasks[0].slots[0])
        else:
            replies = [call.step(clients[0], job.tasks[0])]
    except Refused as no:
        return [Outcome(id=i, refused=str(no), state=s) for i, s in zip(job.ids, states, strict=True)]
    except UserError as mistake:
        return [Outcome(id=i, mistake=str(mistake)) for i in job.ids]
    except Exception as error:
        if call.debug:
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"
        return [
            Outcome(id=i, lost=reason, failed=True, state=dict(s))
            for i, s in zip(job.ids, job.states, strict=True)
        ]
    return outcomes_of(call.step, clients, replies)


def do_in_phases(
    call: Call, jobs: Sequence[Job], client_data: ClientData, bench: Bench
) -> list[Outcome] | None:
    """The same for jobs of one client each, phase by phase: what each phase needs stays in the caches for all of them.

    None where the step cannot, or where a client's work failed: one by one it shows whose.
    """
    clients = [client_of(call, job.ids[0], dict(job.states[0]), client_data, bench) for job in jobs]
    try:
        replies = call.step.cohort(clients, [job.tasks[0] for job in jobs])
    except Exception:
        return None
    return None if replies is None else outcomes_of(call.step, clients, replies)


def outcomes_of(step: Step, clients: Sequence[Client], replies: Any) -> list[Outcome]:
    """The replies as outcomes; anything else is a mistake of the step's author, reported with its place in the code."""
    if not isinstance(replies, list) or len(replies) != len(clients):
        found = f"{len(replies)} replies" if isinstance(replies, list) else f"a {type(replies).__name__}"
        why = f"it gives {found} for {len(clients)} clients"
        return [Outcome(id=client.id, mistake=f"{in_words(step)}: {why}") for client in clients]
    return [
        Outcome(id=client.id, mistake=f"{in_words(step)} gives a reply that cannot be used: {why}")
        if (why := wrong_type(reply))
        else Outcome(id=client.id, reply=reply, state=client.state)
        for client, reply in zip(clients, replies, strict=True)
    ]


def in_words(step: Step) -> str:
    """The step's name, and the file and line where it is written."""
    code = getattr(type(step).__call__, "__code__", None)
    place = f" in {code.co_filename}, line {code.co_firstlineno}" if code else ""
    return f"step {step.kind} ({type(step).__name__}{place})"


def client_of(
    call: Call, number: int, state: dict[str, Any], client_data: ClientData, bench: Bench
) -> Client:
    """The client as its step sees it."""
    return Client(
        id=number,
        train=client_data.train(number, call.round),
        test=client_data.test(number, call.round),
        state=state,
        rng=stream(call.seed, *call.names, "client", number),
        bench=bench,
        seed=call.seed,
        round=call.round,
        live=call.live,
        account=call.account,
        pace=call.paces.get(number),
    )


def bundle(
    call: Call, tasks: Mapping[int, Task], sizes: Mapping[int, int], layout: Layout
) -> list[list[int]]:
    """Which clients can be evaluated in one pass: same single row, no state or buffers of their own."""
    alone = [[i] for i in tasks]
    if not call.step.one_pass or (layout.buffers == "local" and layout.has_buffers):
        return alone
    by_row: dict[tuple[int, int], list[list[int]]] = {}
    loads: dict[tuple[int, int], int] = {}
    for i, task in tasks.items():
        # Several rows mean a choice that each client makes alone: such a client shares its bundle with nobody.
        key = (task.models.data_ptr(), task.slots[0]) if len(task.models) == 1 else (i, -1)
        bundles = by_row.setdefault(key, [[]])
        if bundles[-1] and loads[key] + sizes[i] > BUNDLE_SAMPLES:
            bundles.append([])
        if not bundles[-1]:
            loads[key] = 0
        bundles[-1].append(i)
        loads[key] += sizes[i]
    return [ids for bundles in by_row.values() for ids in bundles]


def jobs_of(
    together: Sequence[Sequence[int]],
    tasks: Mapping[int, Task],
    states: Mapping[int, dict[str, Any]],
    sizes: Mapping[int, int],
) -> list[Job]:
    """One job for each bundle of clients."""
    return [
        Job(
            ids=tuple(ids),
            tasks=tuple(tasks[i] for i in ids),
            states=tuple(states.get(i, {}) for i in ids),
            weight=float(sum(sizes[i] for i in ids)),
        )
        for ids in together
    ]
