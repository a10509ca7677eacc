"""Trackers: what is told of a run while it happens, so that TensorBoard, MLflow and others can show it.

A tracker is made from its settings (`tracker = ["mine.py:Printed", {name = "mlflow", uri = "..."}]`) and is told plain
numbers, so that the same one serves a run in progress and a folder that was finished long ago.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Protocol

from covey.core.round import RoundEnd
from covey.errors import UserError
from covey.folder.journal import fleet_measurements
from covey.runs.config import Config
from covey.settings.catalogue import TRACKERS
from covey.settings.choices import own_settings
from covey.settings.own_code import one_sentence

BEGIN, END = (
    5.0,
    10.0,
)  # seconds for which a run waits for its trackers before its first round, and after its last


@dataclass(frozen=True, kw_only=True, eq=False)
class TrackedRun:
    """What a tracker is told of a run before its first round."""

    name: str  # what the run is called
    folder: Path  # the run folder: a tracker may keep there what it needs after a resume
    settings: Mapping[str, Any]  # the whole configuration, as in config.toml
    round: int = 0  # rounds that were done before: more than 0 for a run that continues


def tracked(config: Config, folder: Path, done: int = 0) -> TrackedRun:
    """What a tracker is told of the run in a folder."""
    # With its seed, because a study has several runs of one name.
    name = f"{config.top.name or config.method_name} seed {config.top.seed}"
    return TrackedRun(name=name, folder=folder, settings=config.tables, round=done)


class Tracker(Protocol):
    """Is told of one run: once before it begins or is resumed, after every round, and at its end."""

    def begin(self, run: TrackedRun) -> None:
        """The run begins, or is resumed after `run.round` rounds."""
        ...

    def log(self, number: int, values: Mapping[str, float]) -> None:
        """The numbers of a round by name: `global-test/accuracy`, `local-test/accuracy-mean`, `cost/seconds` ..."""
        ...

    def end(self, summary: Mapping[str, Any]) -> None:
        """The run has ended; this is what `summary.json` holds. A run that was interrupted has `finished` false."""
        ...


def trackers_of(config: Config) -> dict[str, Tracker]:
    """The trackers that a configuration names."""
    made: dict[str, Tracker] = {}
    for table in config.tables.get("tracker", ()):
        with one_sentence(f"tracker {table['name']!r}"):
            made[table["name"]] = TRACKERS.find(table["name"])(**own_settings(table))
    return made


class Telling:
    """A tracker in a thread of its own: whatever it waits for, the run does not."""

    def __init__(self, name: str, tracker: Tracker, run: TrackedRun) -> None:
        self.name = name
        self.tracker = tracker
        self.messages: SimpleQueue[Callable[[Tracker], None] | None] = SimpleQueue()
        self.begun, self.done = Event(), Event()
        self.error: UserError | None = None
        Thread(target=self._work, args=(run,), name=f"tracker {name}", daemon=True).start()

    def _work(self, run: TrackedRun) -> None:
        try:
            with one_sentence(f"tracker {self.name!r}"):
                self.tracker.begin(run)
                self.begun.set()
                while (message := self.messages.get()) is not None:
                    message(self.tracker)
        except UserError as error:
            self.error = error
        finally:
            self.begun.set()
            self.done.set()


class Tracking:
    """A watcher that tells the trackers of a run; one that fails is reported once and left out: the run continues."""

    def __init__(
        self, trackers: Mapping[str, Tracker], run: TrackedRun, say: Callable[[str], None] | None = None
    ) -> None:
        self.say = say or (lambda _: None)
        self.folder = run.folder
        self.told = [Telling(name, tracker, run) for name, tracker in trackers.items()]
        until = time.monotonic() + BEGIN
        for each in list(self.told):
            if not each.begun.wait(max(0.0, until - time.monotonic())):
                self.say(
                    f"tracker {each.name!r} has not answered in {BEGIN:g} s; the run continues without it"
                )
            elif each.error is not None and not unreachable(each.error):
                raise each.error  # before the first round a mistake should still end the run
        self._forget_failed()

    def __call__(self, end: RoundEnd) -> None:
        values = {
            f"{m.split}/{m.metric}": float(m.value)
            for m in (*end.measurements, *fleet_measurements(end.fleet.ledger))
            if m.client == -1 and m.group == -1
        }
        ledger, number = end.fleet.ledger, end.state.round
        values |= {"cost/seconds": ledger.clock, "cost/bytes": float(ledger.cost.bytes)}
        self._forget_failed()
        for each in self.told:
            each.messages.put(lambda tracker: tracker.log(number, values))

    def end(self, summary: Mapping[str, Any]) -> None:
        for each in self.told:
            each.messages.put(lambda tracker: tracker.end(summary))
            each.messages.put(None)
        until = time.monotonic() + END
        for each in self.told:
            if not each.done.wait(max(0.0, until - time.monotonic())):
                self.say(
                    f"tracker {each.name!r} has not been told everything: log the run later with covey report "
                    f"{self.folder} --to {each.name}"
                )
        self._forget_failed()

    def _forget_failed(self) -> None:
        for each in [one for one in self.told if one.error is not None]:
            self.told.remove(each)
            self.say(f"{each.error}; it is told nothing more; the run continues")


def unreachable(error: BaseException | None) -> bool:
    """Whether the cause is an unreachable server, which may come back, and not a mistake."""
    while error is not None:
        network = type(error).__module__.startswith(("requests.", "urllib3."))
        if network or isinstance(error, ConnectionError | TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False
