"""A fleet of foreign ClientApps: they train and evaluate as they like, and tell arrays and metrics."""

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import Tensor, nn

from covey.core import Mixing, Reply, Step, Task
from covey.core.codec import named_from_bytes
from covey.core.messages import is_whole
from covey.core.reply_schema import Known, Stat
from covey.deploy.flower.grid import response_of, to_record
from covey.deploy.flower.rows import RowForm
from covey.deploy.outcomes import outcome_of
from covey.deploy.transport import SPOKEN, greeting
from covey.deploy.wire import ModelSpec, request_of
from covey.errors import RunError, UserError
from covey.fleet.bookkeeping import Bookkeeping, Trip, WithBooks
from covey.fleet.devices import Devices
from covey.fleet.guard import Guard
from covey.fleet.work import Call, Outcome
from covey.methods.ifca import TellBest
from covey.parts.mix.apply import apply_mixings
from covey.parts.steps.cross import CrossEvaluate
from covey.parts.steps.evaluate import Evaluate
from covey.terminal import printable
from covey.training.frozen import Frozen
from covey.training.objective import Regression
from covey.training.rows import Layout

ANSWER_BYTES = 64 * 2**20  # of what a node tells of its data
WAIT = 1.0  # seconds between two looks at who is there
ONE_LINE = "ClientApp(mods=[covey.flower.portraits(load)])"


@dataclass(frozen=True, kw_only=True)
class Names:
    """What the records and metrics of a foreign app are called; no loss or accuracy: the first that is called so."""

    arrays: str = "arrays"
    config: str = "config"
    size: str = "num-examples"
    loss: str = ""
    accuracy: str = ""

    def value(self, metrics: Mapping[str, Any], what: str) -> float | None:
        """The loss (or accuracy) among the metrics, if there is one."""
        asked = getattr(self, what)
        found = [asked] if asked else [name for name in metrics if what[:3] in name.lower()]
        return float(metrics[found[0]]) if found and found[0] in metrics else None


@dataclass(frozen=True)
class Elsewhere(Step):
    """Training by a foreign ClientApp: what it tells beside its arrays is up to it."""

    kind: ClassVar[str] = "train.elsewhere"

    def __call__(self, client: Any, task: Task) -> Reply:  # noqa: ARG002
        raise RunError("a foreign ClientApp trains by itself")

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        return float(train)

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        return {}


TRAIN = Elsewhere()


class ForeignFleet(WithBooks):
    """Nodes of a Grid with a foreign ClientApp; client numbers follow the order in which nodes appeared."""

    simulated: ClassVar[bool] = False
    debug: ClassVar[bool] = False
    data: None = None
    server_data: None = None
    dataset_name: None = None

    def __init__(
        self,
        form: RowForm,
        *,
        seed: int,
        least: int,
        timeout: float,
        names: Names,
        say: Callable[[str], None],
    ) -> None:
        self.form, self.seed, self.least, self.timeout = form, seed, least, timeout
        self.names, self.say = names, say
        self.grid: Grid | None = None
        self.layout: Layout = form.layout
        self.frozen = Frozen(tensors={})
        self.objective = Regression()  # all that is known is that a loss should be low
        self.books = Bookkeeping(layout=self.layout, known=self.known, guard=Guard(), seed=seed)
        self.nodes: dict[int, int] = {}  # the node of every client
        self.here: list[int] = []
        self.told: dict[int, Known] = {}  # of nodes with the mod: what they said of their data
        self.sizes: dict[int, int] = {}  # samples, as a client last told
        self.pace: dict[int, float] = {}  # seconds that its last training took
        self.run = uuid.uuid4().hex
        self.info = {"name": "flower", "mode": "foreign", "trainer": "foreign", "workers": 0}

    @property
    def model(self) -> nn.Module:
        raise UserError(
            "the network is a foreign ClientApp's own, so that no part of it can be sent; use fedavg"
        )

    # ------------------------------------------------------------------------------------------ who is there

    def begin(self, round: int) -> list[int]:
        """Opens a round and waits until enough nodes are there."""
        self.books.open(round)
        until = time.monotonic() + self.timeout
        while len(nodes := sorted(self.on_grid.get_node_ids())) < self.least:
            if time.monotonic() > until:
                raise RunError(
                    f"round {round}: {len(nodes)} of {self.least} nodes came in {self.timeout:.0f} s"
                )
            time.sleep(WAIT)
        client_of = {node: client for client, node in self.nodes.items()}
        for node in nodes:
            self.nodes.setdefault(client_of.setdefault(node, len(client_of)), node)
        self.here = sorted(client_of[node] for node in nodes)
        self.info["workers"] = len(nodes)
        return [client for client in self.here if client not in self.ledger.barred]

    @property
    def on_grid(self) -> Grid:
        assert self.grid is not None, "a round begins with a Grid"
        return self.grid

    def trainers(self, ids: Sequence[int]) -> list[int]:
        return list(ids)

    def members(self) -> list[int]:
        return list(self.here)

    def objection(self) -> str:
        return ""

    def known(self, client: int) -> Known:
        """What nodes with the mod said of their data; of others nothing is known."""
        return self.told.get(client, Known())

    # ------------------------------------------------------------------------------------------ training

    def training(self, tasks: Mapping[int, Task], config: ConfigRecord) -> dict[int, Message]:
        """The messages that ask foreign clients to train; each is sent one model."""
        return {
            client: self.message(client, "train", task.models[0], config) for client, task in tasks.items()
        }

    def message(self, client: int, kind: str, row: Tensor, config: ConfigRecord) -> Message:
        content = RecordDict({self.names.arrays: self.form.arrays(row), self.names.config: config})
        return Message(content, dst_node_id=self.nodes[client], message_type=kind)

    def trained(self, tasks: Mapping[int, Task], replies: Iterable[Message], begun: float) -> list[Reply]:
        """The replies that count, checked and booked as those of any fleet; `begun` is a time of the clock."""
        call = self.books.call(TRAIN)
        outcomes, trips = [], {}
        heard = self.by_client(replies)
        for client, task in tasks.items():
            outcome = self.training_outcome(client, task, heard.get(client))
            seconds = 0.0
            if outcome.reply is not None:
                seconds = max(0.0, heard[client].metadata.created_at - begun)
                self.pace[client], self.sizes[client] = seconds, outcome.reply.size
            up = outcome.reply.nbytes if outcome.reply else 0
            trips[client] = Trip(down=task.nbytes, up=up, seconds=seconds)
            outcomes.append(outcome)
        return self.books.accept(call, tasks, self.believed(outcomes), trips)

    def believed(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Without the replies whose number of samples cannot be believed, compared with the others'."""
        told = [outcome for outcome in outcomes if outcome.reply is not None]
        doubts = self.books.guard.too_many([one.reply.size for one in told if one.reply is not None])
        why = {told[place].id: reason for place, reason in doubts.items()}
        return [Outcome(id=one.id, refused=why[one.id]) if one.id in why else one for one in outcomes]

    def training_outcome(self, client: int, task: Task, message: Message | None) -> Outcome:
        """What a foreign client's answer comes to."""
        if message is None:
            return Outcome(id=client, lost="no reply in time")
        if message.has_error():
            return Outcome(id=client, lost=printable(f"Flower: {message.error.reason}"))
        try:
            row = self.form.row(message.content[self.names.arrays])
            metrics = metrics_of(message)
            size = metrics.get(self.names.size, 1)
            if not is_whole(size):
                raise ValueError(f"its {self.names.size} is {size!r}, not a whole number")
        except (KeyError, ValueError, TypeError) as error:
            return Outcome(id=client, refused=printable(f"its answer cannot be used: {error}"))
        loss = self.names.value(metrics, "loss")
        stats = {**metrics, **({} if loss is None else {"loss": loss})}
        return Outcome(
            id=client,
            reply=Reply(id=client, vector=row, slot=task.slots[0], size=int(size), stats=stats),
        )

    def by_client(self, replies: Iterable[Message]) -> dict[int, Message]:
        """The answers by client; one that was not asked is left out."""
        client_of = {node: client for client, node in self.nodes.items()}
        found = {client_of.get(reply.metadata.src_node_id, -1): reply for reply in replies}
        return {client: reply for client, reply in found.items() if client >= 0}

    # ------------------------------------------------------------------------------------------ questions

    def _ask(
        self, step: Step, tasks: Mapping[int, Task], deadline: float | None, measure: bool
    ) -> list[Reply]:
        """What a part asks: about models, which a foreign evaluation answers, or about data, which the mod does."""
        if any(client < 0 for client in tasks):
            raise RunError(
                f"{step.kind} is for the server's own data, and a strategy for foreign clients has none"
            )
        call = self.books.call(step, measure=measure)
        about_models = any(len(task.models) for task in tasks.values())
        came = (
            self.evaluated(step, tasks)
            if about_models
            else self.told_by_mods(call, tasks, deadline or self.timeout)
        )
        outcomes = list(came)
        trips = {
            one.id: Trip(down=tasks[one.id].nbytes, up=one.reply.nbytes if one.reply else 0)
            for one in outcomes
        }
        replies = self.books.accept(call, tasks, outcomes, trips, measure=measure)
        if not replies and not about_models:
            raise RunError(
                f"{step.kind} was answered by none of {len(tasks)} nodes ({self.ledger.last_problem()}); it is a "
                f"question about their data, which this line at the client answers: {ONE_LINE}"
            )
        return replies

    def evaluated(self, step: Step, tasks: Mapping[int, Task]) -> Iterator[Outcome]:
        """A question about models, one by one, in the words of a foreign evaluation."""
        if type(step) not in (TellBest, Evaluate, CrossEvaluate) or getattr(step, "by_class", False):
            raise RunError(
                f"{step.kind} is more than a foreign ClientApp can be asked; choose another method"
            )
        most = max(len(task.models) for task in tasks.values())
        heard: dict[int, list[dict[str, Any]]] = {client: [] for client in tasks}
        for place in range(most):
            messages = [
                self.message(client, "evaluate", task.models[place], ConfigRecord())
                for client, task in tasks.items()
                if place < len(task.models)
            ]
            for client, reply in self.by_client(self.exchanged(messages)).items():
                if not reply.has_error() and client in heard:
                    heard[client].append(metrics_of(reply))
        for client, task in tasks.items():
            told = heard[client]
            what = "accuracy" if isinstance(step, CrossEvaluate) else "loss"
            values = [self.names.value(metrics, what) for metrics in told]
            if len(told) < len(task.models) or None in values:
                yield Outcome(id=client, lost=f"its evaluation tells no {what}")
                continue
            numbers = np.array([float(value) for value in values if value is not None])
            size = int(told[0].get(self.names.size, 1))
            best = int(numbers.argmin())
            stats = {"accuracy": numbers} if what == "accuracy" else {"loss": float(numbers[best])}
            reply = Reply(id=client, slot=task.slots[best], size=size, stats=stats)
            yield Outcome(id=client, reply=reply)

    def best_of(self, tasks: Mapping[int, Task]) -> dict[int, Task]:
        """The tasks with one model each: of several, the one with the lowest loss in the client's own evaluation."""
        several = {client: task for client, task in tasks.items() if len(task.models) > 1}
        chosen = {reply.id: reply.slot for reply in self.ask(TellBest(), several)} if several else {}
        found = {client: task for client, task in tasks.items() if client not in several}
        for client, slot in chosen.items():
            place = several[client].slots.index(slot)
            found[client] = replace(
                several[client], models=several[client].models[place : place + 1], slots=(slot,)
            )
        return dict(sorted(found.items()))

    def told_by_mods(self, call: Call, tasks: Mapping[int, Task], seconds: float) -> Iterator[Outcome]:
        """A question about data, as `covey serve` asks its sites; it travels as a call to train, which mods see."""
        self.greet(tasks)
        blocks = {
            client: request_of(
                call,
                client,
                task,
                seconds=seconds,
                protocol=SPOKEN[1],
                run=self.run,
                session=self.run,
                spec=ModelSpec(
                    name="softmax",
                    settings={},
                    shape=self.told[client].shape,
                    outputs=self.told[client].classes or 1,
                    objective="classification" if self.told[client].classes else "regression",
                ),
            )
            for client, task in tasks.items()
            if client in self.told
        }
        heard = self.by_client(self.questions(blocks))
        for client in tasks:
            if client in heard:
                yield outcome_of(client, response_of(heard[client], ANSWER_BYTES))
            else:
                yield Outcome(
                    id=client, lost="no reply in time" if client in blocks else "it has no such mod"
                )

    def greet(self, clients: Iterable[int]) -> None:
        """Asks those who were not asked yet what their data look like."""
        hello = greeting(hello=True, sizes=False)
        unknown = {client: hello for client in clients if client not in self.told}
        for client, message in self.by_client(self.questions(unknown)).items():
            try:
                answer = named_from_bytes(response_of(message, ANSWER_BYTES).answer)
                shape, classes = tuple(int(side) for side in answer["shape"]), int(answer["classes"])
            except (KeyError, ValueError, TypeError):
                continue
            self.told[client] = Known(classes=classes, shape=shape)

    def questions(self, blocks: Mapping[int, bytes]) -> Iterable[Message]:
        return self.exchanged(
            [
                Message(to_record(block), dst_node_id=self.nodes[client], message_type="train")
                for client, block in blocks.items()
            ]
        )

    def exchanged(self, messages: Sequence[Message]) -> Iterable[Message]:
        return self.on_grid.send_and_receive(messages, timeout=self.timeout) if messages else []

    # ------------------------------------------------------------------------------------------ the rest of a fleet

    def combine(
        self,
        mixings: Sequence[Mixing],
        bank: Tensor,
        replies: Sequence[Reply],
        holders: Sequence[int],  # noqa: ARG002
    ) -> Tensor:
        return apply_mixings(mixings, bank, [r.vector for r in replies if r.vector is not None])

    def start(self, number: int = 0) -> Tensor:
        return self.form.start(self.seed, number)

    @property
    def timed(self) -> bool:
        return True

    def seconds(self, step: Step, ids: Iterable[int]) -> dict[int, float]:  # noqa: ARG002
        """As its last training took; before that, in proportion to the samples that it told of."""
        usual = Devices().pace
        return {i: self.pace.get(i, usual * self.sizes.get(i, 1)) for i in ids}

    @property
    def underway(self) -> Collection[int]:
        return ()

    def arrivals(self, step: Step, tasks: Mapping[int, Task], count: int) -> Any:  # noqa: ARG002
        raise UserError("a strategy waits for all replies of a round; choose a method that does")

    def child(self, name: str, model: nn.Module, objective: Any) -> Any:  # noqa: ARG002
        raise UserError(f"{name} is a model of the method's own, which a foreign ClientApp cannot train")

    def memory_bound(self, *, own_models: bool = False, batch: int = 32) -> int:  # noqa: ARG002
        return 4 * self.layout.size * (4 + 2 * len(self.nodes))

    def save(self) -> dict[str, Any]:
        raise UserError("a strategy's run is kept by Flower, not by covey")

    def load(self, saved: Mapping[str, Any]) -> None:  # noqa: ARG002
        raise UserError("a strategy's run is kept by Flower, not by covey")

    def close(self) -> None:
        """The nodes belong to Flower."""


def metrics_of(message: Message) -> dict[str, Any]:
    """All numbers that a client told, of whichever record."""
    found: dict[str, Any] = {}
    for record in message.content.values():
        if isinstance(record, MetricRecord):
            found |= {name: value for name, value in record.items() if isinstance(value, int | float)}
    return found
