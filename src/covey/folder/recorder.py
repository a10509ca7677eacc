"""The run folder: all that a run leaves behind, written so that a crash at any moment damages nothing."""

from __future__ import annotations

import hashlib
import io
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from covey.core import Fleet, Measurement, Method, RoundEnd, State, Task, served
from covey.core.round import empty_state
from covey.errors import UserError
from covey.files import remove, storing, strict_json, write_atomically
from covey.fleet.heterogeneity.measure import of_simulation
from covey.fleet.local import LocalFleet
from covey.fleet.odd import odd_in_words
from covey.fleet.used import Used, rows_in_use
from covey.folder.about import About
from covey.folder.checkpoint import Checkpoint, save_checkpoint
from covey.folder.checksums import ABOUT, FROZEN, SERVED_FILE, Index, Piece, read_index, write_index
from covey.folder.journal import Journal, JournalRow, data_rows, fleet_measurements
from covey.folder.place import tries
from covey.folder.served_rows import ServedRows, facts_of, gathered
from covey.folder.summary import Best, Costs, Losses, Summary, Target
from covey.parts.group.figures import with_true_labels
from covey.parts.steps.served import Serving
from covey.privacy.composition import statement
from covey.settings.own_code import bare_name, data_name
from covey.settings.registry import Origin
from covey.training.metrics import Metrics
from covey.version import __version__

if TYPE_CHECKING:
    from covey.runs.config import Config

# What is made of the journal at the end; once a run is resumed, they are no longer true.
DERIVED = ("metrics.parquet", "summary.json", "report.html", SERVED_FILE)


def config_digest(config: Config) -> str:
    """What tells one configuration from another."""
    return hashlib.sha256(config.toml().encode()).hexdigest()


def same_version(extra: Mapping[str, Any]) -> None:
    """Refuses to continue with another version: the result would be neither's."""
    if extra.get("covey") != __version__:
        raise UserError(
            f"the checkpoint was written by covey {extra.get('covey')}, this is {__version__}; "
            "resume with that version"
        )


class Recorder:
    """A watcher that keeps the journal, the checkpoint and, at the end, metrics.parquet and summary.json."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        fleet: Fleet,
        origins: Sequence[Origin],
        *,
        resumed: Checkpoint | None = None,
    ) -> None:
        self.folder = folder
        self.config = config
        self.fleet = fleet
        self.metrics = Metrics.of(fleet.objective, config.measure.told)
        self.journal = Journal(folder / "metrics.jsonl")
        self.groups: dict[int, int] = {}
        self.best: dict[str, dict[str, Any]] = {}
        self.last: dict[str, float] = {}
        self.reached: dict[str, Any] | None = None
        self.clients = len(fleet.members())
        self.engine: Mapping[str, Any] = {}
        self.origins = list(origins)
        self.wall = 0.0
        self.started = time.perf_counter()
        self.saved_at = 0.0
        self.pending: Checkpoint | None = None
        with storing(folder):
            if not fleet.simulated:
                fleet.ledger.tries = tries(folder, resumed.state.round if resumed else 0)
            if resumed is None:
                self._begin()
            else:
                self.go_back(resumed)
                remove_derived(folder)

    def _begin(self) -> None:
        """The first files. Killed between any two of them, the folder is free, or is resumed from the start."""
        self.journal.begin()
        write_atomically(self.folder / "config.toml", self.config.toml())
        if self.fleet.data is not None:
            self.journal.append(data_rows(self.fleet.data, of_simulation(self.fleet)))
        about = About.of(self.metrics, self.fleet.server_data).json()
        first = {ABOUT: about.encode()}
        if self.fleet.frozen.tensors:
            first[FROZEN] = self.fleet.frozen.file()
        for name, content in first.items():
            write_atomically(self.folder / name, content)
        self.pending = self._checkpoint(empty_state(self.fleet))
        self.save({name: Piece.of(content) for name, content in first.items()})

    def go_back(self, checkpoint: Checkpoint) -> None:
        """Takes the place where the checkpoint was written; what came after it never happened."""
        extra = checkpoint.extra
        self.journal.go_on(checkpoint.journal)
        self.groups = dict(extra["groups"])
        self.best, self.last, self.reached = dict(extra["best"]), dict(extra["last"]), extra["reached"]
        self.clients, self.engine = extra["clients"], extra["engine"]
        # Code or data that changed since then are listed beside what they were.
        self.origins = list(dict.fromkeys([*checkpoint.origins, *self.origins]))
        self.wall = extra["wall"]
        self.pending = None

    def __call__(self, end: RoundEnd) -> None:
        with storing(self.folder):
            self.journal.append(self._rows(end))
            self._follow(end)
            self.clients = len(self.fleet.members())
            self.engine = dict(self.fleet.info)
            self.fleet.ledger.tries = 1
            self.pending = self._checkpoint(end.state)
            due = time.perf_counter() - self.saved_at > self.config.top.checkpoint_seconds
            if due or end.state.round == end.rounds:
                self.save()

    def _checkpoint(self, state: State) -> Checkpoint:
        extra = {
            "covey": __version__,
            "groups": self.groups,
            "best": self.best,
            "last": self.last,
            "reached": self.reached,
            "clients": self.clients,
            "engine": self.engine,
            "own": [asdict(origin) for origin in self.origins],
            "wall": self.wall + time.perf_counter() - self.started,
        }
        return Checkpoint(state=state, fleet=self.fleet.save(), extra=extra, journal=self.journal.piece)

    def save(self, files: Mapping[str, Piece] | None = None) -> None:
        """Writes the checkpoint of the last whole round."""
        if self.pending is not None:
            self.journal.sync()
            config, keep = [config_digest(self.config)], self.config.top.checkpoints
            save_checkpoint(self.folder, self.pending, config=config, files=files, keep=keep)
            self.saved_at = time.perf_counter()
            self.pending = None

    # ------------------------------------------------------------------------------------------ rows

    def _rows(self, end: RoundEnd) -> list[JournalRow]:
        ledger, state = self.fleet.ledger, end.state
        found = [*end.measurements, *fleet_measurements(ledger)]
        for client, group in state.groups.items():
            if self.groups.get(client) != group:
                found.append(
                    Measurement(split="groups", metric="group", value=group, client=client, group=group)
                )
        self.groups = dict(state.groups)
        sent = ledger.cost.bytes
        return [
            (state.round, ledger.clock, sent, m.client, m.group, m.split, m.metric, float(m.value))
            for m in found
        ]

    def _follow(self, end: RoundEnd) -> None:
        """Keeps best and last of every overall number, and when the target was reached."""
        for m in end.measurements:
            if m.client != -1 or m.group != -1:
                continue
            name = f"{m.split}/{m.metric}"
            self.last[name] = m.value
            if m.metric.endswith("-std"):
                continue
            before, metric = self.best.get(name), self.metrics[m.metric]
            if not math.isfinite(m.value) or metric.higher_is_better is None:
                continue
            if before is None or metric.better(m.value, than=before["value"]):
                self.best[name] = {"value": m.value, "round": end.state.round}
        value = self.last.get(self.target_metric())
        if self.reached is None and value is not None and self._is_reached(value):
            ledger = self.fleet.ledger
            self.reached = {"round": end.state.round, "seconds": ledger.clock, "bytes": ledger.cost.bytes}

    def target_metric(self) -> str:
        """The name of the number that the target is about."""
        top = self.config.top
        name = top.target_metric or self.fleet.objective.main
        return f"{top.target_on}/{self.metrics.on_clients(name) if top.target_on == 'local-test' else name}"

    def _is_reached(self, value: float) -> bool:
        target, metric = self.config.top.target, self.target_metric().partition("/")[2]
        return target is not None and self.metrics[metric].reached(value, target)

    @property
    def at_target(self) -> bool:
        """Whether the run may end early."""
        return self.config.top.stop_at_target and self.reached is not None

    # ------------------------------------------------------------------------------------------ the end

    def finish(self, state: State, *, finished: bool, pruned: bool = False) -> Summary:
        """Writes the last checkpoint, metrics.parquet and summary.json; returns the summary."""
        with storing(self.folder):
            self.save()
            method = self.config.method
            tasks = served(method, state, self.fleet, list(state.seen))
            summary = replace(self.summary(state, tasks, finished=finished), pruned=pruned)
            parquet = io.BytesIO()
            pq.write_table(self.journal.table(), parquet, compression="zstd")
            written = {
                "metrics.parquet": parquet.getvalue(),
                "summary.json": strict_json(summary.plain(), indent=1).encode(),
                SERVED_FILE: served_rows(method, state, self.fleet, tasks, make=finished).to_bytes(),
            }
            for name, content in written.items():
                write_atomically(self.folder / name, content)
            remove(self.folder / "report.html")  # of the run before this end
            index = read_index(self.folder) or Index()
            pieces = {**index.lasting, **{name: Piece.of(content) for name, content in written.items()}}
            write_index(self.folder, replace(index, files=pieces))  # from here on the run is at its end
            if finished:
                remove(self.journal.path)
        return summary

    def summary(self, state: State, tasks: Mapping[int, Task], *, finished: bool) -> Summary:
        """What summary.json holds; its schema is in docs/run-folder.md. `tasks` are what clients are given to use."""
        ledger, top = self.fleet.ledger, self.config.top
        target = (
            Target(metric=self.target_metric(), target=top.target, **(self.reached or {}))
            if top.target is not None
            else None
        )
        private, data = self.config.tables.get("private", {}), self.config["data"]
        return Summary(
            covey=__version__,
            name=top.name or self.config.method_name,
            method=self.config.method_name,
            dataset=self.fleet.dataset_name or data_name(data["name"], data.get("path")),
            model=bare_name(self.config["model"]["name"]),
            parameters=self.fleet.layout.trainable,
            clients=self.clients,
            seed=top.seed,
            rounds=top.rounds,
            rounds_done=state.round,
            finished=finished,
            last=self.last,
            best={name: Best(**best) for name, best in self.best.items()},
            targets=(target,) if target else (),
            cost=Costs.of(ledger),
            lost=Losses(count=ledger.lost, examples=ledger.examples("lost")),
            refused=Losses(count=ledger.refused, examples=ledger.examples("refused")),
            epsilon={str(client): spent for client, spent in ledger.epsilon.items()},
            privacy=statement(ledger.told, private.get("delta", DELTA), private.get("accountant", "pld")),
            engine=dict(self.engine),
            own=tuple(self.origins),
            wall_seconds=self.wall + time.perf_counter() - self.started,
            notes=self.notes(state),
            serving=slots_serving(tasks),
        )

    def notes(self, state: State) -> dict[str, Any]:
        """What the method left for the report, who stands out, and what only a simulation can draw."""
        data = self.fleet.data
        odd = odd_in_words(self.fleet.ledger, self.fleet.data.names() if self.fleet.data else ())
        notes = {**state.notes, **({"odd clients": {"text": odd}} if odd else {})}
        if data is None or not state.groups:
            return notes
        return with_true_labels(notes, state.groups, data.label_counts())


def slots_serving(tasks: Mapping[int, Task]) -> dict[str, tuple[int, ...]]:
    """Which rows of the bank serve each client; `all` are those that serve most, for whoever is not named."""
    slots = {client: task.slots for client, task in tasks.items()}
    usual = Counter(slots.values()).most_common(1)[0][0] if slots else ()
    others = {str(client): rows for client, rows in slots.items() if rows != usual}
    return {"all": usual, **others}


def served_rows(
    method: Method, state: State, fleet: Fleet, tasks: Mapping[int, Task], *, make: bool
) -> ServedRows:
    """What every client uses; what must be computed only with `make`, and never where it lies at a real site."""
    serving, facts = Serving.of(method), facts_of(method, fleet.layout)
    if isinstance(fleet, LocalFleet):
        used = rows_in_use(fleet, serving, tasks, state.round, make=make)
    else:
        alone = {i: task for i, task in tasks.items() if facts["as_sent"] and len(task.models) == 1}
        used = (Used(i, task.slots[0], task.models[0]) for i, task in alone.items())
    return gathered(used, state, tasks, serving, {**facts, "made": make})


DELTA = 1e-5  # of the privacy losses in summary.json where [private] says nothing else


def remove_derived(folder: Path) -> None:
    """The files of an earlier end, which a resumed run outdates; they stop counting before they are removed."""
    index = read_index(folder)
    if index is not None and index.files != index.lasting:
        write_index(folder, replace(index, files=index.lasting))
    for name in DERIVED:
        remove(folder / name)
