"""A fleet of real sites: the same asks as in simulation, as messages, with the wall clock and a deadline."""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

from torch import Tensor, nn

from covey.core import Mixing, Reply, Step, Task
from covey.core.ledger import Cost
from covey.core.privacy_loss import Loss
from covey.core.reply_schema import Known
from covey.data.schema import Schema
from covey.data.types import Federation, Scale
from covey.deploy.agreement import as_stored, ask_scale, with_scale
from covey.deploy.audit import names_and_sizes
from covey.deploy.frozen_parts import LACKS, FrozenSender
from covey.deploy.outcomes import ReplySchemas, Turnout, book_unheard, is_training, row_bytes
from covey.deploy.site_registry import ClientNumbers, RegisteredSite, SiteRegistry
from covey.deploy.status import Status
from covey.deploy.study import SiteStudy
from covey.deploy.transport import HELLO, POLL, Transport, awaited, greeting
from covey.deploy.underway import Landed, Underway, depart, first_arrivals
from covey.deploy.wire import ModelSpec, message_type, names_mark, request_of
from covey.errors import RunError, UserError
from covey.fleet.bookkeeping import Bookkeeping, Trip, WithBooks
from covey.fleet.client_data import ClientData
from covey.fleet.devices import Devices
from covey.fleet.executors import Serial
from covey.fleet.guard import Guard
from covey.fleet.holders import same_frozen
from covey.fleet.work import Call, Job, Outcome
from covey.parts.mix.apply import apply_mixings
from covey.parts.mix.peers import peer_links
from covey.parts.steps.scale import TellScale, of_scale, to_scale
from covey.terminal import printable
from covey.training.frozen import Frozen
from covey.training.objective import Objective, lowest_loss
from covey.training.pretrained import encoder_of
from covey.training.rows import Layout, fresh_row

UNTOLD = 2**31  # samples that a site may have that does not tell how many
TOGETHER_BYTES = 64 * 2**20  # of requests that are made before they are sent
FAREWELL = 5.0  # seconds for the sites to hear that the run has ended
ANSWER_BYTES = 4 * 2**20  # of an answer's statistics; its row has the model's size


@dataclass(eq=False)
class SiteFleet(WithBooks):
    """Clients on machines of their own, reached through a `Transport`.

    least: sites that the first round waits for, `patience` seconds. lanes: whether the fast trainer may be used.
    sizes: whether sites are asked how many samples they have. scaling: what they are asked once, if their sums say how
    inputs are standardised. plan: the training of the run, for budgets. schema: of everybody's tables. method: for the
    models that sites take home; of a method's own models nothing is taken. lost: by node, what sites lost when they
    agreed on their columns.
    """

    simulated: ClassVar[bool] = False
    debug: ClassVar[bool] = False
    data: ClassVar[None] = None  # it never leaves the sites

    transport: Transport
    spec: ModelSpec
    _: KW_ONLY
    server_data: Federation
    names: InitVar[ClientNumbers]
    seed: int
    deadline: float
    least: int = 1
    patience: float = 3600.0
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    lanes: bool = False
    sizes: bool = True
    guard: InitVar[Guard | None] = None
    say: Callable[[str], None] = lambda _: None
    status: Status = field(default_factory=Status)
    scaling: TellScale | None = None
    turnout: Turnout = field(default_factory=Turnout)
    plan: Mapping[str, Any] | None = None
    schema: Schema | None = None
    method: str = ""
    lost: dict[int, Loss] = field(default_factory=dict)
    study: SiteStudy | None = None

    def __post_init__(self, names: ClientNumbers, guard: Guard | None) -> None:
        spec, transport = self.spec, self.transport
        self.status.now.dataset = self.server_data.dataset.name
        self.session = uuid.uuid4().hex
        self.model: nn.Module = spec.build(self.seed)
        self.objective: Objective = spec.goal
        self.layout = Layout.of(self.model, spec.buffers)
        self.books = Bookkeeping(layout=self.layout, known=self.known, guard=guard or Guard(), seed=self.seed)
        self.frozen = Frozen.of(self.model)
        self.spec = replace(spec, frozen=self.frozen.digest)
        self.frozen_senders = [FrozenSender(self.frozen, {"model": self.spec.plain()}, transport)]
        if spec.encoder is not None:
            numbers = encoder_of(self.server_data.dataset.encoded_from.setting).frozen  # type: ignore[union-attr]
            self.frozen_senders.append(FrozenSender(numbers, {"encoder": spec.encoder}, transport, "encoder"))
        self.schemas = ReplySchemas()
        self.registry = SiteRegistry(
            transport=transport,
            spec=spec,
            names=names,
            hello_seconds=self.deadline,
            say=self.say,
            status=self.status,
            plan=self.plan,
            schema=self.schema,
            study=self.study.plain() if self.study else None,
            labels=names_mark(self.server_data.dataset.classes),
            sizes=self.sizes,
        )
        self.pace: dict[int, float] = {}  # measured seconds per sample trained
        self.here: list[int] = []
        self.in_flight = Underway()
        self._server_executor: Serial | None = None
        self.info = info_of(spec)

    # ------------------------------------------------------------------------------------------ who is there

    def begin(self, round: int) -> list[int]:
        """Opens a round: greets who is new or was quiet, waits until enough sites are there."""
        self.books.open(round)
        if not self.books.is_child:
            self.turnout.open()
        least = max(1, self.turnout.quorum, self.least if round == 1 or not self.registry.sites else 0)
        self.here = self._believed(self._equipped(self.registry.wait(least, self.patience, round)))
        if not self.books.is_child and (fewer := self.turnout.fewer(len(self.here), self.least)):
            self.say(f"round {round} {fewer}")
        for client in self.here:
            if (loss := self.lost.pop(self.registry.sites[client].node, None)) is not None:
                self.ledger.lose(client, loss)
        if self.scaling is not None:
            self._use(ask_scale(self, self.scaling))
        self.info["workers"] = len(self.registry.sites)
        sites = sorted(self.registry.sites.items())
        self.info["sites"] = ", ".join(f"{site.name} = {i}" for i, site in sites)
        self.info["names"] = {str(i): site.name for i, site in sites}
        return [i for i in self.here if i not in self.underway]

    def _equipped(self, here: list[int]) -> list[int]:
        """Those of the sites that have the frozen parts of model and encoder; whoever lacks one is sent it first."""
        for sender in self.frozen_senders:
            there = {i: self.registry.sites[i] for i in here}
            here = sender.send(there, self.ledger, self.deadline, self.say)
        return here

    def _use(self, scale: Scale | None) -> None:
        """Sites and the server's own test data are standardised alike, and nobody is asked again."""
        self.scaling = None
        if scale is not None:
            self.spec, self._server_executor = replace(self.spec, scale=scale), None
            self.server_data = with_scale(self.server_data, scale)

    def _believed(self, here: list[int]) -> list[int]:
        """Those of the sites that may participate: not barred, and with a number of samples that can be believed."""
        told = [i for i in here if self.registry.sites[i].sizes[0]]  # who has a budget does not tell
        sizes = [self.registry.sites[i].sizes[0] for i in told]
        doubted = {told[place]: why for place, why in self.books.guard.too_many(sizes).items()}
        for client, why in doubted.items():
            self.ledger.note_refusal(client, kind=HELLO, round=self.books.round, reason=why)
        return [i for i in here if i not in doubted and i not in self.ledger.barred]

    def trainers(self, ids: Sequence[int]) -> list[int]:
        """All of them: every site trains on what it holds."""
        return list(ids)

    def known(self, client: int) -> Known:
        """What the server knows of a client: what it told of its data when it first came."""
        train, test = self.registry.sites[client].sizes if client in self.registry.sites else (0, 0)
        known = Known(
            classes=len(self.server_data.dataset.classes),
            shape=self.spec.shape,
            scale=self.server_data.dataset.scale,
            lowest_loss=lowest_loss(self.objective),
        )
        return known if client < 0 else replace(known, train=train or UNTOLD, test=test or UNTOLD)

    def members(self) -> list[int]:
        """The sites that are there in this round: of the others it is not known whether they still belong to it."""
        return list(self.here)

    # ------------------------------------------------------------------------------------------ the door

    def _ask(
        self, step: Step, tasks: Mapping[int, Task], deadline: float | None, measure: bool
    ) -> list[Reply]:
        call = self.books.call(step, measure=measure)
        limit = deadline or self.deadline
        landed = self._at_sites(call, {i: t for i, t in tasks.items() if i >= 0}, limit)
        trips = {one.sent.client: one.trip for one in landed if one.sent.number}
        outcomes = self.schemas.checked(step, tasks, [one.outcome for one in landed])
        outcomes += self._at_the_desk(call, {i: t for i, t in tasks.items() if i < 0})
        replies = self.books.accept(
            call,
            tasks,
            sorted(outcomes, key=lambda outcome: outcome.id),
            {**{outcome.id: Trip() for outcome in outcomes}, **trips},
            deadline=limit if any(trip.seconds >= limit for trip in trips.values()) else None,
            measure=measure,
        )
        book_unheard(self.ledger, step, {reply.id for reply in replies}, set(trips))
        for reply in replies:
            if reply.id in trips:
                self.note_pace(step, reply.id, trips[reply.id].seconds)
        if is_training(step) and not measure and not self.books.is_child:
            self.turnout.note_training(tasks, [reply.id for reply in replies])
        return replies

    def objection(self) -> str:
        """Why nothing can be made of this round: too few sites participate in it."""
        return self.turnout.objection()

    def note_pace(self, step: Step, client: int, seconds: float) -> None:
        """How fast a site trains, as it was seen."""
        if step.kind.startswith("train."):
            self.pace[client] = seconds / self._work(step, client)

    @property
    def underway(self) -> Collection[int]:
        return self.in_flight.clients()

    def arrivals(
        self, step: Step, tasks: Mapping[int, Task], count: int
    ) -> tuple[list[Reply], dict[int, Task], dict[int, int]]:
        """Sends the tasks and waits for the first `count` answers to these and to earlier ones."""
        return first_arrivals(self, self.books.call(step), tasks, count)

    def most_bytes(self, tasks: Mapping[int, Task]) -> int:
        """That an answer to these tasks may have."""
        return 4 * row_bytes(self.layout, tasks) + ANSWER_BYTES

    def _at_sites(self, call: Call, tasks: Mapping[int, Task], limit: float) -> list[Landed]:
        """What became of the tasks: all have answered, or their time is up."""
        flight = Underway()
        landed = depart(self, call, tasks, limit, flight) if tasks else []
        while flight.sent:
            flight.look(self.transport, self.most_bytes(tasks))
            fresh, flight.come = flight.come, []
            for one in fresh:
                self.hear(one)
            landed += fresh
            if flight.sent:
                time.sleep(POLL)
        return landed

    def hear(self, one: Landed) -> None:
        """What became of a question; a site whose time was up counts as quiet until it is greeted again."""
        site = self.registry.sites[one.sent.client]
        site.quiet = site.quiet or (one.trip.up == 0 and bool(one.outcome.lost))
        self.tell(one.outcome, site.name, one.trip.seconds)

    def send(
        self, call: Call, tasks: Mapping[int, Task], there: Mapping[int, RegisteredSite], limit: float
    ) -> tuple[dict[str, int], dict[int, int]]:
        """Sends the tasks, some at a time because every request holds a model; which node each message went to, and
        how many bytes each node was sent."""
        waiting: dict[str, int] = {}
        sizes: dict[int, int] = {}
        blocks: dict[int, bytes] = {}
        for place, (client, site) in enumerate(there.items(), 1):
            blocks[site.node] = self._request(call, client, tasks[client], limit, site.protocol)
            sizes[site.node] = len(blocks[site.node])
            if place == len(there) or sum(map(len, blocks.values())) > TOGETHER_BYTES:
                waiting |= self.transport.send(message_type(call.step.kind), blocks, limit)
                blocks = {}
        return waiting, sizes

    def tell(self, outcome: Outcome, name: str, seconds: float) -> None:
        """Notes in the status what became of a question; a refusal is reported."""
        if self.turnout.note(outcome.id, name, outcome.refused):
            self.say(f"round {self.books.round}: site {name} refused: {outcome.refused}")
        if LACKS in outcome.refused and outcome.id in self.registry.sites:
            for sender in self.frozen_senders:
                sender.forget(self.registry.sites[outcome.id].node)
        told = (
            {}
            if outcome.reply is None
            else names_and_sizes({"row": outcome.reply.vector, **outcome.reply.stats})
        )
        self.status.answered(
            outcome.id, name, seconds=seconds, lost=outcome.lost, refused=outcome.refused, told=told
        )

    def _request(self, call: Call, client: int, task: Task, limit: float, protocol: int) -> bytes:
        return request_of(
            call,
            client,
            task,
            seconds=limit,
            protocol=protocol,
            run=self.run,
            session=self.session,
            spec=self.spec,
            **({"schema": self.schema.plain()} if self.schema else {}),
            **({"method": self.method} if self.method else {}),
            **({"study": self.study.digest} if self.study else {}),
        )

    def _at_the_desk(self, call: Call, tasks: Mapping[int, Task]) -> list[Outcome]:
        """What the server does itself, with the test data that it has."""
        if not tasks:
            return []
        if self._server_executor is None:
            bench = partial(self.spec.bench, self.model)
            self._server_executor = Serial(ClientData(self.server_data, Devices()), bench)
        return self._server_executor(
            call, [Job(ids=(i,), tasks=(t,), states=({},)) for i, t in tasks.items()]
        )

    def combine(
        self, mixings: Sequence[Mixing], bank: Tensor, replies: Sequence[Reply], holders: Sequence[int]
    ) -> Tensor:
        """Applies the matrices at the server, which stands for the links between peers and books them."""
        for used, size in peer_links(mixings, bank.shape[1], holders, replies):
            rows = int(used.rows.sum())
            self.ledger.charge("mix.peers", Cost(messages=rows, bytes_peer=rows * size))
        return apply_mixings(mixings, bank, [r.vector for r in replies if r.vector is not None])

    def start(self, number: int = 0) -> Tensor:
        """A row to start from."""
        return fresh_row(self.model, self.seed, number)

    @property
    def timed(self) -> bool:
        """Real devices take their time."""
        return True

    def seconds(self, step: Step, ids: Iterable[int]) -> dict[int, float]:
        """As measured in earlier rounds; before that, in proportion to the samples."""
        usual = Devices().pace
        return {i: self._work(step, i) * self.pace.get(i, usual) for i in ids}

    def _work(self, step: Step, client: int) -> float:
        """Samples that the client has to train on; 1 where it does not tell how many it has."""
        return step.work(*self.registry.sites[client].sizes) or 1.0

    def child(self, name: str, model: nn.Module, objective: Objective) -> SiteFleet:  # noqa: ARG002
        """The same sites and ledger under a model of the method's own, which the sites build themselves."""
        from covey.deploy.run import with_trainer

        fleet = replace(
            self,
            spec=with_trainer(self.spec.of_child(model), self.lanes),
            names=self.registry.names,
            guard=self.books.guard,
            run=f"{self.run}{name}",
            least=1,
            scaling=None,
            method="",
            lost={},
        )
        fleet.model = model
        fleet.books.become_child(self.books, name)
        fleet.registry = self.registry
        return fleet

    @property
    def dataset_name(self) -> str:
        """What the server's own test data is called."""
        return self.server_data.dataset.name

    # ------------------------------------------------------------------------------------------ memory

    @cached_property
    def server_data_digest(self) -> str:
        """Equal for equal test data at the server."""
        x, y = as_stored(self.server_data, self.spec.scale).test.tensors()
        mark = hashlib.sha256("\0".join(self.server_data.dataset.classes).encode())
        mark.update(x.numpy().tobytes() + y.numpy().tobytes())
        return mark.hexdigest()

    def memory_bound(self, *, own_models: bool = False, batch: int = 32) -> int:  # noqa: ARG002
        """Bytes that the server can need at most beside Python and PyTorch: test data, bank, replies, checkpoint."""
        sites = max(self.least, len(self.registry.sites))
        rows = sites if own_models else 1
        return self.server_data.dataset.x.nbytes + 4 * self.layout.size * (4 * rows + 2 * sites)

    def save(self) -> dict[str, Any]:
        """The ledger and the sites' numbers; the clients' states are kept by the sites."""
        return {
            "ledger": self.ledger.save(),
            "run": self.run,
            "names": dict(self.registry.names.by_name),
            "trainer": self.info["trainer"],
            "least": self.least,
            "own": self.server_data_digest,
            **({"frozen": self.frozen.digest} if self.frozen.digest else {}),
            "scale": of_scale(self.spec.scale),
            **({"schema": self.schema.plain()} if self.schema else {}),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        if "run" not in saved:
            raise UserError("this run is a simulation; resume with: covey run --resume")
        if "scale" in saved:
            self._use(to_scale(saved["scale"], self.spec.shape[0]))
        same_frozen(saved.get("frozen", ""), self.frozen)
        if saved["own"] != self.server_data_digest:
            raise UserError("the run began with other test data at the server; give the same --data again")
        if saved["trainer"] != self.info["trainer"]:
            raise UserError(
                f"the run began with the {saved['trainer']} trainer, and this server would use {self.info['trainer']}; "
                f"install the same extras as before"
            )
        self.ledger.load(saved["ledger"])
        self.session = uuid.uuid4().hex  # sites, too, go back to where a round began
        self.run = saved["run"]
        self.registry.names.by_name = dict(saved["names"])
        self.registry.names.settled = True

    def farewell(self, how: str) -> None:
        """Tells the sites that are there how the run ended, for their logs; nobody is waited for long."""
        if "SuperLink" in how or not self.registry.sites:
            return
        nodes = [site.node for site in self.registry.sites.values() if not site.quiet]
        said = greeting(hello=True, run=self.run, ended=printable(how))
        until = time.monotonic() + FAREWELL
        with contextlib.suppress(RunError):
            waiting = self.transport.send(HELLO, dict.fromkeys(nodes, said), FAREWELL)
            for _ in awaited(self.transport, waiting, most=ANSWER_BYTES, until=until):
                pass

    def close(self) -> None:
        """The sites continue waiting for a next run."""


def info_of(spec: ModelSpec) -> dict[str, Any]:
    """What the run folder says of the engine; how many sites there are is filled in as they come."""
    return {
        "name": "flower",
        "mode": "deployment",
        "workers": 0,
        "trainer": "lanes" if spec.lanes else "torch",
        "why": "decided by the server for all sites",
    }
