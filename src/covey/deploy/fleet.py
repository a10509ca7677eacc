"""A fleet of real sites: the same asks as in simulation, as messages, with the wall clock and a deadline."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

import covey
from covey.codec import from_bytes, task_to_plain, to_bytes
from covey.core import Mixing, Reply, Step, Task
from covey.data.types import Federation
from covey.deploy.site import HELLO
from covey.deploy.wire import ModelSpec, message_type, step_to_plain
from covey.errors import RunError
from covey.fleet.accounts import Trip, next_call, settle
from covey.fleet.devices import Devices
from covey.fleet.ledger import Cost, Ledger
from covey.fleet.peers import apply_mixings, peer_links
from covey.fleet.roster import Roster
from covey.fleet.work import Call, Job, Outcome
from covey.fleet.workers import Serial
from covey.model import Layout, fresh_row
from covey.objective import Objective

HELLO_SECONDS = 10.0  # how long a new site has to introduce itself before the round goes on without it
POLL = 0.2  # seconds between two looks at the mailbox


@dataclass(frozen=True, kw_only=True)
class Letter:
    """What came back for a message: the answer's bytes, or why there is none."""

    answer: bytes = b""
    error: str = ""


class Post(Protocol):
    """Carries bytes to nodes and back. Nodes are numbered by the carrier; what they are called is ours."""

    def nodes(self) -> dict[int, str]:
        """The nodes that are connected now, each with the key it proved to have (or an empty text)."""
        ...

    def send(self, kind: str, blocks: Mapping[int, bytes], seconds: float) -> dict[str, int]:
        """Sends each node its block; gives a number for each message, and which node it went to."""
        ...

    def collect(self, numbers: Sequence[str]) -> dict[str, Letter]:
        """The answers that have come for these messages; each is given once."""
        ...


@dataclass(kw_only=True)
class Seat:
    """A site that has introduced itself."""

    client: int
    name: str
    sizes: tuple[int, int]
    node: int
    quiet: bool = False  # it missed a deadline and has not been heard of since


class Names:
    """Which client number a site has: by its key where keys are known, else by its name; the same for ever."""

    def __init__(self, by_key: Mapping[str, int]) -> None:
        self.by_key = dict(by_key)
        self.by_name: dict[str, int] = {}
        self.settled = False

    def number(self, key: str, name: str) -> int | None:
        if self.by_key:
            return self.by_key.get(key)
        return self.by_name.setdefault(name, len(self.by_name)) if name else None

    def settle(self) -> dict[int, int]:
        """Numbers the names that have come so far in their order, 2 before 10; gives the new number of each old one."""
        if self.by_key or self.settled:
            return {}
        self.settled = True
        old = self.by_name
        self.by_name = {name: number for number, name in enumerate(sorted(old, key=_natural))}
        return {number: self.by_name[name] for name, number in old.items()}


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


class SiteFleet:
    """Clients on machines of their own, reached through a `Post`."""

    def __init__(
        self,
        post: Post,
        spec: ModelSpec,
        *,
        own: Federation,
        names: Names,
        seed: int,
        deadline: float,
        least: int = 1,
        patience: float = 3600.0,
        run: str = "",
        lanes: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.post = post
        self.spec = spec
        self.own = own
        self.names = names
        self.seed = seed
        self.deadline = deadline
        self.least = least
        self.patience = patience
        self.run = run or uuid.uuid4().hex
        self.session = uuid.uuid4().hex
        self.lanes = lanes
        self.name = "run"
        self.say = say
        self.model: nn.Module = spec.build(seed)
        self.objective: Objective = spec.goal
        self.layout = Layout.of(self.model, spec.buffers)
        self.ledger = Ledger()
        self.seats: dict[int, Seat] = {}
        self.greeted: dict[str, int] = {}  # messages of introduction that wait for an answer
        self.left_out: dict[int, str] = {}  # why a node has no seat, to say it once
        self.round = 0
        self.calls: dict[str, int] = {}
        self.pace: dict[int, float] = {}  # measured seconds a sample trained
        self.here: list[int] = []
        self._desk: Serial | None = None
        self.info: dict[str, Any] = {
            "name": "flower",
            "mode": "deployment",
            "workers": 0,
            "trainer": "lanes" if spec.lanes else "torch",
            "why": "decided by the server for all sites",
        }

    # ------------------------------------------------------------------------------------------ who is there

    def begin(self, round: int) -> list[int]:
        """Opens a round: greets who is new or was quiet, waits until enough sites are there."""
        self.round = round
        self.calls = {}
        if not self.is_child:
            self.ledger.open()
        least = self.least if round == 1 or not self.seats else 1
        give_up = time.monotonic() + self.patience
        told = -1
        while len(here := self._reachable()) < least:
            if len(here) != told:
                self.say(f"{len(here)} of {least} sites are here")
                told = len(here)
            if time.monotonic() > give_up:
                raise RunError(f"round {round}: {len(here)} of {least} sites came in {self.patience:.0f} s")
            time.sleep(POLL)
        if changed := self.names.settle():  # so that it does not matter who came first
            for seat in self.seats.values():
                seat.client = changed[seat.client]
            seats = {seat.client: seat for seat in self.seats.values()}
            self.seats.clear()  # a child shares it
            self.seats.update(seats)
            here = sorted(changed[client] for client in here)
        self.here = here
        self.info["workers"] = len(self.seats)
        return here

    def members(self) -> list[int]:
        """The sites that are there in this round: of the others it is not known whether they still belong to it."""
        return list(self.here)

    def _reachable(self) -> list[int]:
        nodes = self.post.nodes()
        self._greet(nodes)
        return sorted(s.client for s in self.seats.values() if s.node in nodes and not s.quiet)

    def _greet(self, nodes: Mapping[int, str]) -> None:
        """Asks new and quiet nodes who they are; takes in what they answer, without holding up those that do not."""
        known = {seat.node for seat in self.seats.values() if not seat.quiet}
        waiting = set(self.greeted.values())
        new = [node for node in nodes if node not in known and node not in waiting]
        if new:
            block = to_bytes({"covey": covey.__version__, "hello": True})
            self.greeted.update(self.post.send(HELLO, dict.fromkeys(new, block), 10 * self.deadline))
        fresh = {number for number, node in self.greeted.items() if node in new}
        until = time.monotonic() + HELLO_SECONDS
        while self.greeted:
            for number, letter in self.post.collect(list(self.greeted)).items():
                node = self.greeted.pop(number)
                fresh.discard(number)
                self._seat(node, nodes.get(node, ""), letter)
            if not fresh or time.monotonic() > until:
                break
            time.sleep(POLL)

    def _seat(self, node: int, key: str, letter: Letter) -> None:
        hello = _hello(letter)
        if "refused" in hello:
            if self.left_out.get(node) != hello["refused"]:
                self.say(f"a site is left out for now: {hello['refused']}")
            self.left_out[node] = hello["refused"]
            return
        self.left_out.pop(node, None)
        shape, outputs = tuple(hello["shape"]), int(hello["classes"]) or 1
        client = self.names.number(key, str(hello["name"]))
        if client is None:
            self.say("a site is left out: neither its key nor its name is known")
        elif not self.is_child and (shape, outputs) != (self.spec.shape, self.spec.outputs):
            self.say(
                f"site {hello['name']} is left out: its samples have shape {shape} and {outputs} classes, the model "
                f"is for {self.spec.shape} and {self.spec.outputs}"
            )
        else:
            back = client in self.seats
            sizes = (int(hello["sizes"][0]), int(hello["sizes"][1]))
            self.seats[client] = Seat(client=client, name=str(hello["name"]), sizes=sizes, node=node)
            number = f" as client {client}" if self.names.by_key or self.names.settled else ""
            self.say(f"site {hello['name']} is {'back' if back else 'here'}{number}")

    # ------------------------------------------------------------------------------------------ the door

    def ask(
        self, step: Step, tasks: Mapping[int, Task], *, deadline: float | None = None, measure: bool = False
    ) -> list[Reply]:
        """Sends the tasks, waits until all have answered or the deadline, and gives the replies by ascending id."""
        call = next_call(
            self.calls, step, where="measure" if measure else self.name, seed=self.seed, round=self.round
        )
        limit = deadline or self.deadline
        trips: dict[int, Trip] = {}
        outcomes = self._at_sites(call, {i: t for i, t in tasks.items() if i >= 0}, limit, trips)
        outcomes += self._at_the_desk(call, {i: t for i, t in tasks.items() if i < 0})
        nothing = Trip(down=0, up=0, seconds=0.0)
        replies = settle(
            sorted(outcomes, key=lambda outcome: outcome.id),
            call=call,
            tasks=tasks,
            trip=lambda outcome: trips.get(outcome.id, nothing),
            ledger=self.ledger,
            layout=self.layout,
            deadline=limit if any(trip.seconds >= limit for trip in trips.values()) else None,
            measure=measure,
            child=self.is_child,
        )
        if step.kind.startswith("train."):
            for reply in replies:
                if reply.id in trips and (work := step.work(*self.seats[reply.id].sizes)):
                    self.pace[reply.id] = trips[reply.id].seconds / work
        return replies

    def _at_sites(
        self, call: Call, tasks: Mapping[int, Task], limit: float, trips: dict[int, Trip]
    ) -> list[Outcome]:
        if not tasks:
            return []
        there = {i: seat for i in tasks if (seat := self.seats.get(i)) and not seat.quiet}
        outcomes = [Outcome(id=i, lost="it is not connected") for i in tasks if i not in there]
        blocks = {there[i].node: self._request(call, i, tasks[i]) for i in there}
        client_of = {seat.node: i for i, seat in there.items()}
        started = time.monotonic()
        waiting = self.post.send(message_type(call.step.kind), blocks, limit) if blocks else {}
        while waiting:
            late = (
                time.monotonic() > started + limit
            )  # asked before the last look, so that nothing there is missed
            for number, letter in self.post.collect(list(waiting)).items():
                node = waiting.pop(number)
                seconds = min(time.monotonic() - started, limit)
                trips[client_of[node]] = Trip(down=len(blocks[node]), up=len(letter.answer), seconds=seconds)
                outcomes.append(_outcome(client_of[node], letter))
            if late:
                break
            if waiting:
                time.sleep(POLL)
        for node in waiting.values():
            client = client_of[node]
            self.seats[client].quiet = True
            trips[client] = Trip(down=len(blocks[node]), up=0, seconds=limit)
            outcomes.append(Outcome(id=client, lost=f"no reply in {limit:.1f} s"))
        return outcomes

    def _request(self, call: Call, client: int, task: Task) -> bytes:
        return to_bytes(
            {
                "covey": covey.__version__,
                "run": self.run,
                "session": self.session,
                "seed": call.seed,
                "round": call.round,
                "names": call.names,
                "client": client,
                "step": step_to_plain(call.step),
                "model": self.spec.plain(),
                "task": task_to_plain(task),
            }
        )

    def _at_the_desk(self, call: Call, tasks: Mapping[int, Task]) -> list[Outcome]:
        """What the server does itself, with the test data that it has."""
        if not tasks:
            return []
        if self._desk is None:
            self._desk = Serial(Roster(self.own, Devices()), self.spec.bench)
        return self._desk(call, [Job(ids=(i,), tasks=(t,), states=({},)) for i, t in tasks.items()])

    def combine(
        self, mixings: Sequence[Mixing], bank: Tensor, replies: Sequence[Reply], seats: Sequence[int]
    ) -> Tensor:
        """Applies the matrices at the server, which stands for the links between peers and books them."""
        for used, row_bytes in peer_links(mixings, bank.shape[1], seats, replies):
            rows = int(used.rows.sum())
            self.ledger.book("mix.peers", Cost(messages=rows, bytes_peer=rows * row_bytes))
        return apply_mixings(mixings, bank, [r.vector for r in replies if r.vector is not None])

    def start(self, number: int = 0) -> Tensor:
        """A row to start from."""
        return fresh_row(self.model, self.seed, number)

    def seconds(self, step: Step, ids: Iterable[int]) -> dict[int, float]:
        """As measured in earlier rounds; before that, in proportion to the samples."""
        usual = Devices().pace
        return {i: step.work(*self.seats[i].sizes) * self.pace.get(i, usual) for i in ids}

    def child(self, name: str, model: nn.Module, objective: Objective) -> SiteFleet:  # noqa: ARG002
        """The same sites and ledger under a model of the method's own, which the sites build themselves."""
        from covey.deploy.run import with_trainer

        fleet = SiteFleet(
            self.post,
            with_trainer(self.spec.child(model), self.lanes),
            own=self.own,
            names=self.names,
            seed=self.seed,
            deadline=self.deadline,
            run=f"{self.run}{name}",
            lanes=self.lanes,
            say=self.say,
        )
        fleet.model = model
        fleet.name = f"{self.name}/{name}"
        fleet.ledger, fleet.seats, fleet.greeted = self.ledger, self.seats, self.greeted
        return fleet

    @property
    def dataset_name(self) -> str:
        """What the server's own test data is called."""
        return self.own.dataset.name

    @property
    def is_child(self) -> bool:
        """A child's rounds all lie within one round of the run."""
        return self.name != "run"

    # ------------------------------------------------------------------------------------------ memory

    def memory_bound(self, rows: int = 1, batch: int = 32) -> int:  # noqa: ARG002
        """Bytes that the server can need at most beside Python and PyTorch: test data, bank and replies."""
        return self.own.dataset.x.nbytes + 4 * self.layout.size * (
            2 * rows + 2 * max(self.least, len(self.seats))
        )

    def save(self) -> dict[str, Any]:
        """The ledger and who is who; the clients' states are kept by the sites."""
        return {
            "ledger": self.ledger.save(),
            "run": self.run,
            "names": dict(self.names.by_name),
            "trainer": self.info["trainer"],
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        self.ledger.load(saved["ledger"])
        self.run = saved["run"]
        self.names.by_name = dict(saved["names"])
        self.names.settled = True

    def close(self) -> None:
        """The sites go on waiting for a next run."""


def _hello(letter: Letter) -> dict[str, Any]:
    """How a site introduced itself, or why it did not."""
    if letter.error:
        return {"refused": letter.error}
    try:
        hello = from_bytes(letter.answer)
        return (
            hello
            if "refused" in hello
            else {name: hello[name] for name in ("name", "shape", "classes", "sizes")}
        )
    except (KeyError, TypeError, ValueError) as error:
        return {"refused": f"its answer cannot be read: {type(error).__name__}: {error}"}


def _outcome(client: int, letter: Letter) -> Outcome:
    """What a site answered; nothing that it says can do more than be left out."""
    if letter.error:
        return Outcome(id=client, lost=letter.error)
    try:
        answer = from_bytes(letter.answer)
        if "reply" not in answer:
            return Outcome(id=client, refused=str(answer["refused"]))
        reply = Reply(**answer["reply"]) if answer["reply"] is not None else None
        problem = answer["lost"] or answer["mistake"]
        return Outcome(id=client, reply=reply, lost=str(problem), refused=str(answer["refused"]))
    except (KeyError, TypeError, ValueError) as error:
        return Outcome(id=client, refused=f"its answer cannot be read: {type(error).__name__}: {error}")
