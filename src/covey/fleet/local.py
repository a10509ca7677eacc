"""The local engine: a whole fleet simulated on this machine, with a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from covey.core import Mixing, Reply, Step, Task, stream
from covey.core.reply_schema import Known
from covey.data.types import Federation
from covey.errors import UserError
from covey.files import usable_cores
from covey.fleet.bookkeeping import Bookkeeping, Trip, WithBooks
from covey.fleet.client_data import ClientData
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.evaluations import Evaluations
from covey.fleet.executors import Cohort, Processes, Serial, Threads
from covey.fleet.fit import check_fit, check_steps_fit
from covey.fleet.flight import Flight
from covey.fleet.guard import Guard
from covey.fleet.holders import Holders
from covey.fleet.memory import memory_bound
from covey.fleet.peer_costs import cost_of_links
from covey.fleet.profiles import Device
from covey.fleet.work import Call, Executor, Outcome, bundle, jobs_of
from covey.parts.mix.apply import apply_mixings
from covey.parts.mix.combine import one_by_one
from covey.parts.mix.peers import peer_links
from covey.training.bench import Bench
from covey.training.bench.choose import choose_bench
from covey.training.frozen import Frozen, hollow
from covey.training.objective import Classification, Objective, lowest_loss, mixes_samples
from covey.training.rows import BufferPolicy, Layout, fresh_row

if TYPE_CHECKING:
    from covey.fleet.ray import Crew


WIDE = 1 << 18  # numbers of a row from which on several threads check and average replies sooner than one


class LocalFleet(WithBooks):
    """Simulated clients: index views into one data set, one model per worker.

    Args:
        data: who has which samples.
        model: the network, with its first weights.
        objective: what is trained for; none: classification.
        devices: the clients' machines; none: equal ones that never fail.
        seed: of everything random.
        engine: how the simulation uses this machine.
        buffers: what becomes of BatchNorm statistics.
        guard: what an update may be, compared with the others'.
        say: takes the notes for the user.
        source: makes the data again, for Ray workers that read shared files.

    Raises:
        UserError: where the model does not fit the data.

    Examples:
        >>> data = covey.federate(covey.load("digits"), partition="iid", clients=5, seed=0)
        >>> network = covey.models.build("mlp", input_shape=(1, 8, 8), outputs=10)
        >>> fleet = covey.LocalFleet(data, network, devices=covey.Devices(profile="haccs", dropout=0.1))
    """

    simulated: ClassVar[bool] = True
    dataset_name: None = None  # the configuration names it

    def __init__(
        self,
        data: Federation,
        model: nn.Module,
        *,
        objective: Objective | None = None,
        devices: Devices | None = None,
        seed: int = 0,
        engine: Engine | None = None,
        buffers: BufferPolicy = "average",
        guard: Guard | None = None,
        say: Callable[[str], None] | None = None,
        source: Callable[[], Federation] | None = None,
    ) -> None:
        check_steps_fit(data, model, objective, devices)
        self.data = self.server_data = data
        self.source = source  # how the data can be loaded again, elsewhere
        self.model = model
        self.seed = seed
        self.engine = engine or Engine()
        self.devices = devices or Devices()
        self.objective: Objective = objective or Classification()
        self.layout = Layout.of(model, buffers)
        self.frozen = Frozen.of(model)
        self.holders = Holders(self.frozen)
        self.client_data = ClientData(data, self.devices)
        of_server = Known(
            classes=len(data.dataset.classes),
            shape=self._input_shape,
            scale=data.dataset.scale,
            lowest_loss=lowest_loss(self.objective),
        )
        # No method of this fleet: a circle would keep all data until Python's collector comes, runs later.
        self.known = partial(known_of, of_server, self.client_data)
        self.books = Bookkeeping(
            layout=self.layout,
            known=self.known,
            guard=guard or Guard(),
            seed=seed,
            debug=self.engine.debug,
        )
        self.machines: list[Device] = self.devices.build(len(data.shares), stream(seed, "devices"))
        self.states: dict[int, dict[str, Any]] = {}
        self.in_flight: dict[int, Flight] = {}
        self._say = say
        # None: whatever is faster. A resumed run keeps the trainer it began with.
        self._lanes: bool | None = None if self.engine.lanes else False
        self.info: dict[str, Any] = {}
        self._executor: Executor | None = None
        self._crew: Crew | None = None
        self._parent: LocalFleet | None = None
        self._bench: Bench | None = None
        self.evaluations = Evaluations()

    # ------------------------------------------------------------------------------------------ who is there

    def begin(self, round: int) -> Sequence[int]:
        """Opens a round and says who can be reached in it."""
        self.books.open(round)
        members = self.members()
        away = self.devices.away(members, round, partial(stream, self.seed), self.machines)
        if not away and not self.ledger.barred and not self.in_flight:
            return members
        return [
            i for i in members if i not in away and i not in self.ledger.barred and i not in self.in_flight
        ]

    def members(self) -> Sequence[int]:
        """Who belongs to the fleet in this round."""
        return self.devices.members(len(self.client_data), self.books.round)

    def objection(self) -> str:
        """Nothing: a simulated round counts with whoever answers."""
        return ""

    def trainers(self, ids: Sequence[int]) -> Sequence[int]:
        """Those of them who have labelled samples."""
        unlabelled = self.client_data.unlabelled
        return [i for i in ids if i not in unlabelled] if unlabelled else ids

    def start(self, number: int = 0) -> Tensor:
        """A row to start from."""
        return fresh_row(self.model, self.seed, number)

    def child(self, name: str, model: nn.Module, objective: Objective) -> LocalFleet:
        """The same clients and ledger under another model, with streams of its own."""
        fleet = LocalFleet(
            self.data,
            model,
            objective=objective,
            devices=self.devices,
            seed=self.seed,
            engine=self.engine,
            buffers=self.layout.buffers,
            guard=self.books.guard,
            say=self._say,
        )
        fleet.books.become_child(self.books, name)
        fleet._parent = self
        return fleet

    @property
    def debug(self) -> bool:
        return self.engine.debug

    # ------------------------------------------------------------------------------------------ the door

    def _ask(
        self, step: Step, tasks: Mapping[int, Task], deadline: float | None, measure: bool
    ) -> list[Reply]:
        if step.of_labels:
            tasks = {i: tasks[i] for i in self.trainers(list(tasks))}
        if not measure:
            self.holders.send(tasks, self.machines, self.ledger, wait=True)
        call, outcomes = self._outcomes(step, tasks, measure)
        trips = {o.id: self._trip(step, tasks[o.id], o, measure) for o in outcomes}
        deadline = deadline or self.devices.deadline
        return self.books.accept(call, tasks, outcomes, trips, deadline=deadline, measure=measure)

    def arrivals(
        self, step: Step, tasks: Mapping[int, Task], count: int
    ) -> tuple[list[Reply], dict[int, Task], dict[int, int]]:
        """Sends the tasks and waits, on the virtual clock, for the first `count` of all that are under way."""
        waits = self.holders.send(tasks, self.machines, self.ledger, wait=False)
        call, outcomes = self._outcomes(step, tasks, measure=False)
        for outcome in outcomes:
            trip = self._trip(step, tasks[outcome.id], outcome, measure=False)
            trip = replace(trip, seconds=trip.seconds + waits.get(outcome.id, 0.0))
            self.in_flight[outcome.id] = Flight(
                sent=self.books.round,
                arrives=self.ledger.clock + trip.seconds,
                task=tasks[outcome.id],
                outcome=outcome,
                trip=trip,
            )
        replies: list[Reply] = []
        landed: dict[int, Flight] = {}
        while len(replies) < count and self.in_flight:  # what is lost or refused is no arrival
            order = sorted(self.in_flight, key=lambda i: (self.in_flight[i].arrives, i))
            fresh = {i: self.in_flight.pop(i) for i in sorted(order[: count - len(replies)])}
            landed |= fresh
            trips = {i: flight.rest_of_trip(self.ledger.clock) for i, flight in fresh.items()}
            outcomes = [flight.outcome for flight in fresh.values()]
            tasks = {i: flight.task for i, flight in fresh.items()}
            replies += self.books.accept(call, tasks, outcomes, trips, deadline=self.devices.deadline)
        replies.sort(key=lambda reply: reply.id)
        return replies, {i: f.task for i, f in landed.items()}, {i: f.sent for i, f in landed.items()}

    @property
    def underway(self) -> Collection[int]:
        return self.in_flight.keys()

    def _outcomes(self, step: Step, tasks: Mapping[int, Task], measure: bool) -> tuple[Call, list[Outcome]]:
        """What becomes of every task, by ascending id; lost ones come last."""
        call = self.books.call(step, measure=measure)
        if time_limit(step) is not None:
            call = replace(call, paces={i: self._pace(i) for i in tasks})
        gone = self._lost(tasks, call.number) if not measure else set()
        working = {i: tasks[i] for i in sorted(tasks) if i not in gone}
        known: list[Outcome] = []
        work = 0.0
        if measure and not mixes_samples(self.objective):
            known, work = self.evaluations.answers(
                call, working, self.client_data, self.states, self.layout, self.executor
            )
            for outcome in known:
                del working[outcome.id]
        sizes = {i: self.client_data.sizes(i) for i in working}
        samples = {i: sum(size) for i, size in sizes.items()}
        together = bundle(call, working, samples, self.layout) if measure else [[i] for i in working]
        jobs = jobs_of(together, working, self.states, samples)
        found = self.executor(call, jobs) if jobs or not known else []
        outcomes = sorted([*known, *found], key=lambda outcome: outcome.id)
        self.ledger.note_work(work + sum(step.work(*size) for size in sizes.values()), measure=measure)
        for outcome in outcomes:
            if outcome.state:
                self.states[outcome.id] = outcome.state
        return call, outcomes + [Outcome(id=i, lost="the reply never arrived") for i in sorted(gone)]

    def _trip(self, step: Step, task: Task, outcome: Outcome, measure: bool) -> Trip:
        """What it takes to ask one client, as it is sent."""
        reply, client = outcome.reply, outcome.id
        spared = 4 * step.spared(self.layout) * task.rows
        down = task.nbytes - spared if client >= 0 else 0
        up = 0 if reply is None or client < 0 else reply.sent(task)
        seconds = self._duration(step, client, down, up) * (client >= 0 or not measure)
        return Trip(down=down, up=up, seconds=seconds)

    def combine(
        self, mixings: Sequence[Mixing], bank: Tensor, replies: Sequence[Reply], holders: Sequence[int]
    ) -> Tensor:
        """Applies the matrices; what travels between peers is booked and takes as long as the busiest peer."""
        for used, row_bytes in peer_links(mixings, bank.shape[1], holders, replies):
            self.ledger.charge("mix.peers", cost_of_links(used, row_bytes, self.machines))
        vectors = [r.vector for r in replies if r.vector is not None]
        return apply_mixings(mixings, bank, vectors, self.books.each)

    @property
    def timed(self) -> bool:
        """Whether devices are anything but equal."""
        return not self.devices.alike

    def seconds(self, step: Step, ids: Iterable[int]) -> dict[int, float]:
        """How long each client takes for the step with one model each way."""
        row = 4 * self.layout.size
        return {i: self._duration(step, i, row, row) for i in ids}

    def _lost(self, tasks: Mapping[int, Task], number: int) -> set[int]:
        """Whose reply never arrives: the same clients whatever the method asks, because all see the same failures."""
        clients = [i for i in tasks if i >= 0]
        return self.devices.lost(clients, (number, "round", self.books.round), partial(stream, self.seed))

    # ------------------------------------------------------------------------------------------ work

    @property
    def executor(self) -> Executor:
        """The workers, started at the first task."""
        if self._executor is None:
            if not self.books.is_child:
                check_fit(self.model, self.data, self.objective)
            make, mode, workers = self._plan()
            if mode == "cohort":
                self._executor = Cohort(self.client_data, make)
            elif mode in ("serial", "wire"):
                self._executor = Serial(self.client_data, make, wire=mode == "wire")
            elif mode == "threads":
                exact = self.info["trainer"] == "lanes"
                self._executor = Threads(self.client_data, make, workers, in_phases=exact)
                if self.layout.size > WIDE:
                    self.books.each = self._executor.each
            elif mode == "ray":
                self._executor = self._ray_executor()
            else:
                self._executor = Processes(self.client_data, make, workers)
        return self._executor

    def _plan(self) -> tuple[Callable[[], Bench], str, int]:
        """How to make a bench, in which mode, with how many workers."""
        workers = self.engine.workers or usable_cores()
        make, info = choose_bench(
            self.model,
            self.objective,
            self._input_shape,
            buffers=self.layout.buffers,
            lanes=False if self.engine.mode == "cohort" else self._lanes,
            device=self.engine.device,
            stacking=self.engine.stacking,
            say=self._say,
        )
        mode = self.engine.mode_for(info["trainer"], info["device"], workers)
        alone = mode in ("serial", "wire", "cohort")
        self.info = {**info, "name": "local", "mode": mode, "workers": 1 if alone else workers}
        return make, mode, workers

    @property
    def _input_shape(self) -> tuple[int, ...]:
        return tuple(self.data.dataset.x.shape[1:])

    def _ray_executor(self) -> Executor:
        from covey.fleet.ray import BenchSpec

        spec = BenchSpec(
            model=hollow(self.model),
            frozen=self.frozen.arrays(),
            objective=self.objective,
            shape=self._input_shape,
            buffers=self.layout.buffers,
            lanes=self.info["trainer"] == "lanes",
            device=self.info["device"],
        )
        executor = self.crew.executor(spec)
        self.info |= {"name": "ray", "workers": self.crew.workers, "nodes": self.crew.nodes}
        return executor

    @property
    def crew(self) -> Crew:
        """The Ray actors, which a child shares with its parent."""
        if self._parent is not None:
            return self._parent.crew
        if self._crew is None:
            from covey.fleet.ray import Crew
            from covey.fleet.ray_data import runtime_env, shared

            self._crew = Crew(
                shared(self.client_data, self.source) if self.engine.data == "shared" else self.client_data,
                address=self.engine.address,
                workers=self.engine.workers,
                gpus=self.engine.gpus if self.info["device"] != "cpu" else 0.0,
                environment=runtime_env(self.engine.runtime_env),
                say=self._say or (lambda _: None),
            )
        return self._crew

    # ------------------------------------------------------------------------------------------ accounts

    def _duration(self, step: Step, client: int, down: int, up: int) -> float:
        work = step.work(*self.client_data.sizes(client))
        machine = self.machines[client] if client >= 0 else Device()
        if (limit := time_limit(step)) is not None:
            work = min(work, limit / max(self._pace(client), 1e-12))
        return machine.seconds(bytes_down=down, bytes_up=up, work=work, pace=self.devices.pace)

    def _pace(self, client: int) -> float:
        """Seconds that a client takes to train on one sample."""
        return self.devices.pace * (self.machines[client].compute if client >= 0 else 1.0)

    # ------------------------------------------------------------------------------------------ memory

    def memory_bound(self, *, own_models: bool = False, batch: int = 32) -> int:
        """Bytes that a run can need at most beside Python and PyTorch."""
        workers = self.engine.workers or usable_cores()
        return memory_bound(self.data, self.model, self.layout, workers=workers, own=own_models, batch=batch)

    def save(self) -> dict[str, Any]:
        """Client states and the ledger, for an exact resume."""
        return {
            "states": {str(i): state for i, state in self.states.items()},
            "ledger": self.ledger.save(),
            "trainer": self.info.get("trainer"),
            "in_flight": {str(i): flight.plain() for i, flight in self.in_flight.items()},
            **self.holders.save(),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        if "states" not in saved:
            raise UserError("this run is one over real sites; resume with: covey serve --resume")
        self.holders.load(saved)
        self.states = {int(i): dict(state) for i, state in saved["states"].items()}
        self.ledger.load(saved["ledger"])
        self.in_flight = {int(i): Flight.of(one) for i, one in saved.get("in_flight", {}).items()}
        if saved["trainer"] is not None:
            self._lanes = saved["trainer"] == "lanes"

    def close(self) -> None:
        """Ends the workers."""
        if self._executor is not None:
            self._executor.close()
        self._executor, self.books.each = None, one_by_one
        if self._crew is not None:
            self._crew.close()
            self._crew = None


def known_of(of_server: Known, client_data: ClientData, client: int) -> Known:
    """What the server knows of a client, or of itself, without asking anybody."""
    if client < 0:
        return of_server
    train, test = client_data.sizes(client)
    return replace(of_server, train=train, test=test)


def time_limit(step: Step) -> float | None:
    """The seconds after which a client ends its training, if there are any."""
    limit: float | None = getattr(getattr(step, "train", step), "seconds", None)
    return limit
