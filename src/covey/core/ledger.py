"""What everything costs: messages, bytes and seconds of every step kind, and what went wrong."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from covey.core.privacy_loss import Loss, Told, add_loss, answers_called, losses_of, plain_by_client

MAX_EXAMPLES = 50  # problems kept word for word; the rest is only counted
LONGEST_KEPT = 50  # rounds of which it is remembered who sent the longest update


@dataclass(kw_only=True)
class Cost:
    """Messages, bytes by direction, and seconds on the clock."""

    messages: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    bytes_peer: int = 0
    seconds: float = 0.0

    def add(self, other: Self) -> None:
        self.messages += other.messages
        self.bytes_up += other.bytes_up
        self.bytes_down += other.bytes_down
        self.bytes_peer += other.bytes_peer
        self.seconds += other.seconds

    @property
    def bytes(self) -> int:
        return self.bytes_up + self.bytes_down + self.bytes_peer


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A reply that was lost (never came) or refused (came, but could not be used)."""

    client: int
    kind: str
    round: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Busy:
    """When on the clock a client began to train, and for how long."""

    client: int
    start: float
    seconds: float


@dataclass(kw_only=True)
class Conduct:
    """A client's updates compared with the others': how many, how many too long, how many pointing backwards."""

    updates: int = 0
    long: int = 0
    against: int = 0
    times: float = 0.0  # the others' length that the longest had
    compared: int = 0  # updates whose direction was compared with the others' of the same model
    cosine: float = 0.0  # sum of their median cosines to the others
    apart: float = 0.0  # sum of how far these lie above the others'


@dataclass(kw_only=True)
class Ledger:
    """Filled by the fleet only. Measuring (evaluation that no method asked for) is kept apart."""

    clock: float = 0.0  # seconds since the start of the run
    total: dict[str, Cost] = field(default_factory=dict)  # step kind -> cost
    measuring: dict[str, Cost] = field(default_factory=dict)
    this_round: dict[str, Cost] = field(default_factory=dict)
    busy: list[Busy] = field(default_factory=list)  # of this round
    asked: int = 0  # clients asked to train in this round
    replied: int = 0
    lost: int = 0
    refused: int = 0
    lost_in_round: int = 0
    refused_in_round: int = 0
    failed_in_round: int = 0  # training steps that raised an error
    # of this round: client -> loss of a refused training, NaN where the trained row is not finite
    losses_refused: dict[int, float] = field(default_factory=dict)
    problems: list[tuple[str, Problem]] = field(default_factory=list)
    latest: tuple[str, Problem] | None = None
    epsilon: dict[int, float] = field(default_factory=dict)  # client -> privacy budget spent
    told: dict[int, Told] = field(default_factory=dict)  # client -> all that it told under noise
    tries: int = 1  # of this round: a server of real sites that was killed in it makes it again
    # round, client, times the others' update
    longest: list[tuple[int, int, float]] = field(default_factory=list)
    conduct: dict[int, Conduct] = field(default_factory=dict)  # client -> how its updates were
    barred: dict[int, str] = field(default_factory=dict)  # client -> why it no longer participates
    work: float = 0.0  # computing of the clients, in samples trained once
    work_measuring: float = 0.0
    times_measured: int = 0
    last_measured: int = 0  # round
    longest_at_once: float | None = None  # seconds, of what is asked at the same time
    sample: float = 1.0  # share of the test data that is measured on between the first rounds and the last

    def open(self) -> None:
        """A new round begins."""
        self.this_round = {}
        self.busy = []
        self.asked = self.replied = self.lost_in_round = self.refused_in_round = 0
        self.failed_in_round = 0
        self.losses_refused = {}

    def charge(self, kind: str, cost: Cost, *, measure: bool = False) -> None:
        """Adds a cost; measuring does not move the clock."""
        if measure:
            self.measuring.setdefault(kind, Cost()).add(cost)
            return
        if self.longest_at_once is not None:
            longer = max(0.0, cost.seconds - self.longest_at_once)
            self.longest_at_once += longer
            cost = replace(cost, seconds=longer)
        self.total.setdefault(kind, Cost()).add(cost)
        self.this_round.setdefault(kind, Cost()).add(cost)
        self.clock += cost.seconds

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Questions in this block are asked at the same time: the clock moves by the longest of them only."""
        self.longest_at_once = 0.0
        try:
            yield
        finally:
            self.longest_at_once = None

    def note_work(self, samples: float, *, measure: bool) -> None:
        """Counts computing, in samples trained once."""
        if measure:
            self.work_measuring += samples
        else:
            self.work += samples

    def note_measured(self, round: int) -> None:
        """A round was measured."""
        self.times_measured += 1
        self.last_measured = round

    def note_problem(self, what: str, problem: Problem) -> None:
        """`what` is "lost" or "refused"."""
        if what == "lost":
            self.lost += 1
            self.lost_in_round += 1
        else:
            self.refused += 1
            self.refused_in_round += 1
        self.latest = (what, problem)
        if len(self.problems) < MAX_EXAMPLES:
            self.problems.append((what, problem))

    def note_refusal(self, client: int, *, kind: str, round: int, reason: str) -> None:
        """A reply that came, but could not be used."""
        self.note_problem("refused", Problem(client=client, kind=kind, round=round, reason=reason))

    def tell(self, client: int, epsilon: float, *, kind: str, whole: bool = False) -> None:
        """Books the total that a client says it has spent on summaries and the like; the increase was spent now."""
        news = epsilon - self.epsilon.get(client, 0.0)
        self.epsilon[client] = epsilon
        if news > 0:
            self.lose(client, Loss(what=answers_called(kind), mechanism="stated", noise=news, whole=whole))

    def lose(self, client: int, loss: Loss, times: int = 1) -> None:
        """Books what a client told under noise, in every try of this round; a promised bound covers all tries."""
        tries = 1 if loss.mechanism == "promised" else self.tries
        add_loss(self.told.setdefault(client, {}), loss, tries * times)

    def note_longest(self, round: int, client: int, times: float) -> None:
        """Who sent the round's longest update beside the others': the first suspect should the run be spoiled."""
        self.longest = [*self.longest[1 - LONGEST_KEPT :], (round, client, times)]

    def note_direction(self, client: int, *, cosine: float, apart: float) -> None:
        """How an update points compared with the others of its model."""
        one = self.conduct.setdefault(client, Conduct())
        one.compared, one.cosine, one.apart = one.compared + 1, one.cosine + cosine, one.apart + apart

    def note_conduct(self, client: int, *, long: bool, against: bool, times: float) -> None:
        """One more update of a client: whether it was too long, or backwards, compared with the others."""
        one = self.conduct.setdefault(client, Conduct())
        one.updates += 1
        one.long += long
        one.against += against
        one.times = max(one.times, times)

    def last_problem(self) -> str:
        """The latest problem in words."""
        if self.latest is None:
            return ""
        what, p = self.latest
        return f"Client {p.client} was {what} in {p.kind}, round {p.round}: {p.reason}"

    def why_in_round(self) -> str:
        """The latest problem of this round, for the end of a sentence; nothing where there was none."""
        return f". {self.last_problem()}" if self.lost_in_round or self.refused_in_round else ""

    def examples(self, what: str) -> tuple[Problem, ...]:
        return tuple(problem for kind, problem in self.problems if kind == what)

    @property
    def cost(self) -> Cost:
        """Everything but measuring, added up."""
        whole = Cost()
        for cost in self.total.values():
            whole.add(cost)
        return whole

    def save(self) -> dict[str, Any]:
        """Plain values for the checkpoint."""
        return {
            "clock": self.clock,
            "total": {kind: dict(vars(cost)) for kind, cost in self.total.items()},
            "measuring": {kind: dict(vars(cost)) for kind, cost in self.measuring.items()},
            "lost": self.lost,
            "refused": self.refused,
            "problems": [[what, asdict(problem)] for what, problem in self.problems],
            "epsilon": {str(client): spent for client, spent in self.epsilon.items()},
            "told": plain_by_client(self.told),
            "longest": [list(one) for one in self.longest],
            "conduct": {str(client): dict(vars(one)) for client, one in self.conduct.items()},
            "barred": {str(client): why for client, why in self.barred.items()},
            "work": [self.work, self.work_measuring, self.times_measured, self.last_measured],
            "sample": self.sample,
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Takes the values of a checkpoint; keeps this object, because others hold it."""
        self.clock = saved["clock"]
        self.total = {kind: Cost(**cost) for kind, cost in saved["total"].items()}
        self.measuring = {kind: Cost(**cost) for kind, cost in saved["measuring"].items()}
        self.lost, self.refused = saved["lost"], saved["refused"]
        self.problems = [(what, Problem(**problem)) for what, problem in saved["problems"]]
        self.latest = self.problems[-1] if self.problems else None
        self.epsilon = {int(client): spent for client, spent in saved["epsilon"].items()}
        self.told = {int(client): losses_of(told) for client, told in saved.get("told", {}).items()}
        self.longest = [(round, client, times) for round, client, times in saved.get("longest", [])]
        self.conduct = {int(client): Conduct(**one) for client, one in saved.get("conduct", {}).items()}
        self.barred = {int(client): why for client, why in saved.get("barred", {}).items()}
        counted = saved.get("work", (0.0, 0.0, 0, 0))
        self.work, self.work_measuring, self.times_measured, self.last_measured = counted
        self.sample = saved.get("sample", 1.0)
        self.open()
