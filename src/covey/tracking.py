"""Trackers: what is told of a run while it happens, so that TensorBoard, MLflow and others can show it.

A tracker is made from its settings (`tracker = ["mine.py:Printed", {name = "mlflow", uri = "..."}]`) and is told plain
numbers, so that the same one serves a run in progress and a folder that was finished long ago.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from covey.catalogue import TRACKERS
from covey.config import Config
from covey.core import RoundEnd
from covey.errors import UserError
from covey.journal import fleet_measurements
from covey.own_code import one_sentence
from covey.sections import own_settings


@dataclass(frozen=True, kw_only=True, eq=False)
class TrackedRun:
    """What a tracker is told of a run before its first round."""

    name: str  # what the run is called
    folder: Path  # the run folder: a tracker may keep there what it needs to go on after a resume
    settings: Mapping[str, Any]  # the whole configuration, as in config.toml
    round: int = 0  # rounds that were done before: more than 0 for a run that goes on


def tracked(config: Config, folder: Path, done: int = 0) -> TrackedRun:
    """What a tracker is told of the run in a folder."""
    # With its seed, because a study has several runs of one name.
    name = f"{config.top.name or config.method_name} seed {config.top.seed}"
    return TrackedRun(name=name, folder=folder, settings=config.tables, round=done)


class Tracker(Protocol):
    """Is told of one run: once before it begins or goes on, after every round, and at its end."""

    def begin(self, run: TrackedRun) -> None:
        """The run begins, or goes on after `run.round` rounds."""
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


class Tracking:
    """A watcher that tells the trackers of a run; one that fails is said once and told no more: the run goes on."""

    def __init__(
        self, trackers: Mapping[str, Tracker], run: TrackedRun, say: Callable[[str], None] | None = None
    ) -> None:
        self.trackers = dict(trackers)
        self.say = say or (lambda _: None)
        for name, tracker in self.trackers.items():  # before the first round a mistake is still worth an end
            with one_sentence(f"tracker {name!r}"):
                tracker.begin(run)

    def __call__(self, end: RoundEnd) -> None:
        values = {
            f"{m.split}/{m.metric}": float(m.value)
            for m in (*end.measurements, *fleet_measurements(end.fleet.ledger))
            if m.client == -1 and m.group == -1
        }
        ledger = end.fleet.ledger
        values |= {"cost/seconds": ledger.clock, "cost/bytes": float(ledger.cost.bytes)}
        self._tell(lambda tracker: tracker.log(end.state.round, values))

    def end(self, summary: Mapping[str, Any]) -> None:
        self._tell(lambda tracker: tracker.end(summary))

    def _tell(self, message: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                with one_sentence(f"tracker {name!r}"):
                    message(tracker)
            except (UserError, OSError) as error:
                del self.trackers[name]
                self.say(f"{error}; it is told no more, the run goes on")
