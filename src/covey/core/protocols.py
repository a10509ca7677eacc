"""Who answers: a client as its step sees it, a step, and a fleet, whatever engine is behind it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from torch import Tensor, nn

from covey.core.checks import HeardReplies
from covey.core.ledger import Ledger
from covey.core.messages import Reply, Task
from covey.core.privacy_loss import Loss
from covey.core.reply_schema import Known, Stat
from covey.data.types import Dataset, Federation, View
from covey.streams import stream
from covey.training.bench.base import Bench
from covey.training.frozen import Frozen
from covey.training.objective import Objective
from covey.training.rows import Layout


def server_client(row: int) -> int:
    """The id under which the server itself works on a row: it holds the global test set (and, simulated, all data)."""
    return -1 - row


class Account(Protocol):
    """What a real device has spent on telling about its data: it outlives every round and run."""

    epsilon: float
    unsaid: Callable[[str], None] | None  # told what the server must not know of a failure; none where it may

    def spend(self, epsilon: float, *, budget: float | None = None) -> float:
        """Books a loss and gives the new total; refuses beyond the device's own budget or the one given."""
        ...

    def lose(self, loss: Loss, times: int = 1) -> None:
        """Books an update with noise; refuses beyond the device's own budget."""
        ...

    def answer_bytes(self, question: str, count: int, cost: float | Loss) -> bytes:
        """Secret random bytes for a question about the device's data: the same each time, paid for once."""
        ...


@dataclass(kw_only=True)
class Client:
    """What a step may touch on a device.

    Args:
        id: of the client; below zero, the server itself.
        train: its training data.
        test: its own test data.
        state: what outlives the round.
        rng: this step's own random stream.
        bench: where a model runs.
        seed: of the run.
        round: the number of the round.
        live: whether this is a real device, where nothing that protects its data may come from the run's seed.
        account: of a real device, what it has spent of its privacy budget.
        pace: of a simulated device, the seconds that it takes to train on one sample; None where nobody asks.

    Examples:
        >>> def count(client: covey.Client, task: covey.Task) -> covey.Reply:
        ...     return covey.Reply(id=client.id, stats={"samples": len(client.train)})
    """

    id: int
    train: View
    test: View
    state: dict[str, Any]
    rng: np.random.Generator
    bench: Bench
    seed: int
    round: int
    live: bool = False
    account: Account | None = None
    pace: float | None = None

    def stream(self, *names: str | int) -> np.random.Generator:
        """A stream of this client that does not change from round to round."""
        return stream(self.seed, *names, "client", self.id)


class Step(Protocol):
    """What a client can be asked: a frozen dataclass of settings, derived from this, that is called on the device.

    `kind` is "query.x", "train.x" or "evaluate.x", and the message type on the wire; `work` says how much computing
    it is, `expects` which statistics it tells.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Count(covey.Step):
        ...     kind = "query.count"
        ...     def __call__(self, client, task):
        ...         return covey.Reply(id=client.id, stats={"samples": len(client.train)})
        ...     def work(self, train, test):
        ...         return 0.0
    """

    kind: ClassVar[str] = ""  # "query.x", "train.x" or "evaluate.x": also the message type on the wire
    one_pass: ClassVar[bool] = False  # whether `many` does clients that use one row faster than one by one
    of_labels: ClassVar[bool] = False  # whether it tells of labels: who has none is not asked
    passes: ClassVar[float] = 0.0  # over the training data, beside training itself; training on a sample is 1

    def __call__(self, client: Client, task: Task) -> Reply: ...

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        """How much computing it is, in samples trained once, for a client of that many samples."""
        return self.passes * train

    def unfit(self, dataset: Dataset) -> str:  # noqa: ARG002
        """Why no client can do it on data of this kind, or an empty text: said before anybody is asked."""
        return ""

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        """The statistics of its reply, with their ranges for a client of which the server knows that much."""
        return {}

    def many(self, clients: Sequence[Client], row: Tensor, slot: int) -> list[Reply]:
        """The same for clients that use one row, keep no state and have no buffers of their own."""
        return [self(client, Task(models=row[None], slots=(slot,))) for client in clients]

    def unpacked(self, reply: Reply, task: Task, layout: Layout) -> Reply:  # noqa: ARG002
        """The reply as the server uses it, where it travels in a shorter form."""
        return reply

    def misfit(self, reply: Reply, layout: Layout, known: Known) -> str:  # noqa: ARG002
        """Why no client of which the server knows that much can have this row, as the server uses it; or empty."""
        return ""

    def spared(self, layout: Layout) -> int:  # noqa: ARG002
        """Numbers of every row that the client has itself, so that they need not be sent to it."""
        return 0

    def cohort(self, clients: Sequence[Client], tasks: Sequence[Task]) -> list[Reply] | None:  # noqa: ARG002
        """The same for many clients: at once on a GPU, up to rounding, or phase by phase; None: only one by one."""
        return None


class Rule(Protocol):
    """What takes the place of a weighted mean where some rows may be hostile (`parts/mix/robust.py`)."""

    around_start: ClassVar[bool]  # whether the result depends on the row that is replaced

    def combine(self, rows: Sequence[Tensor], weights: np.ndarray, start: Tensor) -> Tensor:
        """One row out of at least two; `weights` add up to 1, `start` is the row that is replaced."""
        ...

    def fewest(self) -> int:
        """The fewest rows among which it withstands a bad one."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixing:
    """A product of matrices for some columns of the bank; the first one maps `[old rows; replies]` to the new rows.

    Args:
        factors: dense or scipy.sparse matrices, applied in this order.
        columns: of the rows, those that are combined so: a slice, or their numbers.
        peers: whether row i lives at a client, so that every entry from another client's row is one message.
        rule: what combines the replies in place of their weighted mean.

    Examples:
        >>> import numpy as np
        >>> average_of_two = covey.Mixing(factors=[np.array([[0.0, 0.5, 0.5]])])  # old row, two replies
    """

    factors: Sequence[Any]
    columns: slice | Tensor = field(default_factory=lambda: slice(None))
    peers: bool = False
    rule: Rule | None = None


class Fleet(Protocol):
    """The only door to the clients, whatever engine is behind it."""

    seed: int
    simulated: ClassVar[bool]  # on this machine or a cluster of ours, and not on real devices

    @property
    def ledger(self) -> Ledger: ...
    @property
    def answers(self) -> HeardReplies:
        """The replies to the part that runs now; `ask` goes through it."""
        ...

    @property
    def debug(self) -> bool:
        """Whether every error is raised in place."""
        ...

    @property
    def layout(self) -> Layout: ...
    @property
    def frozen(self) -> Frozen:
        """What nobody trains of the model, which is in no row."""
        ...

    @property
    def model(self) -> nn.Module:
        """The network; rows are loaded into copies of it."""
        ...

    @property
    def objective(self) -> Objective: ...
    @property
    def info(self) -> Mapping[str, Any]:
        """What runs the clients: engine, trainer, workers; plain values for the summary."""
        ...

    @property
    def data(self) -> Federation | None:
        """Everybody's data, which only a simulation can show."""
        ...

    @property
    def server_data(self) -> Federation | None:
        """What the server holds itself: in a simulation everybody's data, over real sites its own test data."""
        ...

    @property
    def dataset_name(self) -> str | None:
        """What the data are called, where that is not what the configuration names."""
        ...

    def known(self, client: int) -> Known:
        """What the server itself knows of a client, by which its answers are measured."""
        ...

    def begin(self, round: int) -> Sequence[int]:
        """Opens a round and says who can be reached in it, in ascending order."""
        ...

    def trainers(self, ids: Sequence[int]) -> Sequence[int]:
        """Those of them who can train: unseen clients without labels are grouped and served, and never chosen."""
        ...

    def members(self) -> Sequence[int]:
        """Who belongs to the fleet in this round, reachable or not."""
        ...

    def ask(
        self, step: Step, tasks: Mapping[int, Task], *, deadline: float | None = None, measure: bool = False
    ) -> list[Reply]:
        """Sends the tasks and returns the replies by ascending id; lost and refused ones are absent.

        `measure` marks what only serves to observe the run: it is booked apart and the clock does not move.
        """
        ...

    def objection(self) -> str:
        """Why nothing may be made of this round, or an empty text: real sites may be too few, or all refuse."""
        ...

    @property
    def underway(self) -> Collection[int]:
        """Clients that still work on a task of an earlier round: they cannot be asked anything else."""
        ...

    def arrivals(
        self, step: Step, tasks: Mapping[int, Task], count: int
    ) -> tuple[list[Reply], dict[int, Task], dict[int, int]]:
        """Sends the tasks and waits for the first `count` replies to these and to earlier ones.

        Returns the replies that count, the tasks that they answer, and in which round each of these was sent. Whoever
        has not arrived stays under way.
        """
        ...

    def combine(
        self, mixings: Sequence[Mixing], bank: Tensor, replies: Sequence[Reply], holders: Sequence[int]
    ) -> Tensor:
        """Applies the matrices, charges what travels between peers; row i is held by client `holders[i]`."""
        ...

    def start(self, number: int = 0) -> Tensor:
        """A row to start from: 0 is the model that was given, others are drawn anew."""
        ...

    @property
    def timed(self) -> bool:
        """Whether it is known that devices differ in time: real ones do, simulated ones where a profile says so."""
        ...

    def seconds(self, step: Step, ids: Iterable[int]) -> dict[int, float]:
        """How long each client is expected to take for the step with one model each way, from profiling."""
        ...

    def child(self, name: str, model: nn.Module, objective: Objective) -> Self:
        """The same clients and the same ledger under another model and streams of its own."""
        ...

    def memory_bound(self, *, own_models: bool = False, batch: int = 32) -> int:
        """Bytes that a run can need at most, beside Python and PyTorch; with one model in the bank or everybody's."""
        ...

    def save(self) -> dict[str, Any]:
        """What must be remembered besides `State` (client states, ledger) for an exact resume."""
        ...

    def load(self, saved: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...
