"""The run folder: all that a run leaves behind, written so that a crash at any moment spoils nothing."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import covey
from covey.checkpoint import Checkpoint, save_checkpoint, write_atomically
from covey.config import Config
from covey.core import Fleet, Measurement, RoundEnd, State
from covey.data.types import Federation
from covey.errors import UserError
from covey.fleet.ledger import Ledger
from covey.group.figures import with_true_labels
from covey.own_code import bare_name
from covey.report.rows import SCHEMA

Row = tuple[int, float, int, int, int, str, str, float]


def fingerprint(config: Config) -> str:
    """What tells one configuration from another."""
    return hashlib.sha256(config.toml().encode()).hexdigest()


def same_run(extra: Mapping[str, Any], config: Config) -> None:
    """Refuses to go on under other settings or with another version: the result would be neither run's."""
    if extra.get("config") != fingerprint(config):
        raise UserError(
            "config.toml was changed after the checkpoint was written; start a new run with it instead"
        )
    if extra.get("covey") != covey.__version__:
        raise UserError(
            f"the checkpoint was written by covey {extra.get('covey')}, this is {covey.__version__}; "
            "resume with that version"
        )


class Recorder:
    """A watcher that keeps the journal, the checkpoint and, at the end, metrics.parquet and summary.json."""

    def __init__(
        self, folder: Path, config: Config, fleet: Fleet, *, resumed: Checkpoint | None = None
    ) -> None:
        self.folder = folder
        self.config = config
        self.fleet = fleet
        self.journal = folder / "metrics.jsonl"
        self.groups: dict[int, int] = {}
        self.best: dict[str, dict[str, float]] = {}
        self.last: dict[str, float] = {}
        self.reached: dict[str, float] | None = None
        self.wall = 0.0
        self.started = time.perf_counter()
        self.saved_at = 0.0
        self.pending: Checkpoint | None = None
        if resumed is not None:
            self._go_on(resumed.extra)
        else:
            write_atomically(folder / "config.toml", config.toml())
            self.journal.write_text("")
            data = getattr(fleet, "data", None)
            if isinstance(data, Federation):
                self._append(data_rows(data))

    def _go_on(self, extra: Mapping[str, Any]) -> None:
        """Takes the place where the checkpoint was written; what the journal holds beyond it never happened."""
        if not self.journal.exists() or self.journal.stat().st_size < extra["journal"]:
            raise UserError(f"{self.journal} is shorter than the checkpoint says; this run cannot be resumed")
        with open(self.journal, "r+b") as file:
            file.truncate(extra["journal"])
        self.groups = dict(extra["groups"])
        self.best, self.last, self.reached = dict(extra["best"]), dict(extra["last"]), extra["reached"]
        self.wall = extra["wall"]

    def __call__(self, end: RoundEnd) -> None:
        self._append(self._rows(end))
        self._follow(end)
        self.pending = Checkpoint(
            state=end.state,
            fleet=self.fleet.save(),
            extra={
                "journal": self.journal.stat().st_size,
                "config": fingerprint(self.config),
                "covey": covey.__version__,
                "groups": self.groups,
                "best": self.best,
                "last": {name: value if math.isfinite(value) else None for name, value in self.last.items()},
                "reached": self.reached,
                "wall": self.wall + time.perf_counter() - self.started,
            },
        )
        due = time.perf_counter() - self.saved_at > self.config.top.checkpoint_seconds
        if due or end.state.round == end.rounds:
            self.save()

    def save(self) -> None:
        """Writes the checkpoint of the last whole round."""
        if self.pending is not None:
            with open(self.journal, "rb") as file:
                os.fsync(file.fileno())  # the checkpoint must never be ahead of the journal, power cut or not
            save_checkpoint(self.folder, self.pending)
            self.saved_at = time.perf_counter()
            self.pending = None

    # ------------------------------------------------------------------------------------------ rows

    def _rows(self, end: RoundEnd) -> list[Row]:
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

    def _append(self, rows: Sequence[Row]) -> None:
        with open(self.journal, "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def _follow(self, end: RoundEnd) -> None:
        """Keeps best and last of every overall number, and when the target was reached."""
        for m in end.measurements:
            if m.client != -1 or m.group != -1:
                continue
            name = f"{m.split}/{m.metric}"
            self.last[name] = m.value
            if m.metric.endswith("-std"):
                continue
            main = self.fleet.objective.main
            up = self.fleet.objective.higher_is_better and m.metric.removeprefix(main) != m.metric
            before = self.best.get(name)
            if not math.isfinite(m.value):
                continue
            if before is None or (m.value > before["value"] if up else m.value < before["value"]):
                self.best[name] = {"value": m.value, "round": end.state.round}
        value = self.last.get(self.target_metric())
        if self.reached is None and value is not None and self._is_reached(value):
            ledger = self.fleet.ledger
            self.reached = {"round": end.state.round, "seconds": ledger.clock, "bytes": ledger.cost.bytes}

    def target_metric(self) -> str:
        """The name of the number that the target is about."""
        top, main = self.config.top, self.fleet.objective.main
        return f"{top.target_on}/{main}" + ("-mean" if top.target_on == "local-test" else "")

    def _is_reached(self, value: float) -> bool:
        target = self.config.top.target
        if target is None:
            return False
        return value >= target if self.fleet.objective.higher_is_better else value <= target

    def stop(self, end: RoundEnd) -> bool:  # noqa: ARG002
        """Whether the run may end early."""
        return self.config.top.stop_at_target and self.reached is not None

    # ------------------------------------------------------------------------------------------ the end

    def finish(self, state: State, *, finished: bool) -> dict[str, Any]:
        """Writes the last checkpoint, metrics.parquet and summary.json; returns the summary."""
        self.save()
        summary = self.summary(state, finished=finished)
        table = journal_table(self.journal)
        parquet = io.BytesIO()
        pq.write_table(table, parquet, compression="zstd")
        write_atomically(self.folder / "metrics.parquet", parquet.getvalue())
        write_atomically(self.folder / "summary.json", json.dumps(summary, indent=1))
        if finished:
            self.journal.unlink(missing_ok=True)
        return summary

    def summary(self, state: State, *, finished: bool) -> dict[str, Any]:
        """What summary.json holds; its schema is in docs/run-folder.md."""
        ledger, top, layout = self.fleet.ledger, self.config.top, self.fleet.layout
        targets = []
        if top.target is not None:
            nothing = {"round": None, "seconds": None, "bytes": None}
            targets.append(
                {"metric": self.target_metric(), "target": top.target, **(self.reached or nothing)}
            )
        return {
            "schema": 1,
            "covey": covey.__version__,
            "name": top.name or self.config.method_name,
            "method": self.config.method_name,
            "dataset": getattr(self.fleet, "dataset_name", bare_name(self.config["data"]["name"])),
            "model": bare_name(self.config["model"]["name"]),
            "parameters": layout.trainable,
            "clients": len(self.fleet.members()),
            "seed": top.seed,
            "rounds": top.rounds,
            "rounds_done": state.round,
            "finished": finished,
            "last": {name: value if math.isfinite(value) else None for name, value in self.last.items()},
            "best": self.best,
            "targets": targets,
            "cost": cost_summary(ledger),
            "lost": {"count": ledger.lost, "examples": ledger.examples("lost")},
            "refused": {"count": ledger.refused, "examples": ledger.examples("refused")},
            "epsilon": {str(client): spent for client, spent in ledger.epsilon.items()},
            "engine": getattr(self.fleet, "info", {}),
            "wall_seconds": self.wall + time.perf_counter() - self.started,
            "notes": self.notes(state),
        }

    def notes(self, state: State) -> dict[str, Any]:
        """What the method left for the report, and what only a simulation can draw."""
        data = getattr(self.fleet, "data", None)
        if not isinstance(data, Federation) or not state.groups:
            return dict(state.notes)
        return with_true_labels(state.notes, state.groups, data.label_counts())


def journal_table(journal: Path) -> pa.Table:
    """The journal's rows as a table; a last line cut short by a crash is left out."""
    rows = []
    with open(journal) as file:
        for line in file:
            if line.endswith("\n"):
                rows.append(json.loads(line))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA
    )


def data_rows(data: Federation) -> list[Row]:
    """How many samples of each label every client holds, and its true kind where the partition knows it."""
    rows: list[Row] = []
    for client, counts in enumerate(data.label_counts()):
        rows += [
            (-1, 0.0, 0, client, -1, "data", f"label:{data.dataset.classes[label]}", float(count))
            for label, count in enumerate(counts)
            if count
        ]
    rows += [
        (-1, 0.0, 0, client, -1, "data", "kind", float(share.kind))
        for client, share in enumerate(data.shares)
        if share.kind >= 0
    ]
    return rows


def fleet_measurements(ledger: Ledger) -> list[Measurement]:
    """What the round cost, as measurements of the split "fleet"."""
    counts = {
        "selected": ledger.asked,
        "replied": ledger.replied,
        "lost": ledger.lost_in_round,
        "refused": ledger.refused_in_round,
    }
    found = [Measurement(split="fleet", metric=name, value=value) for name, value in counts.items()]
    for kind, cost in ledger.this_round.items():
        values = {
            "messages": cost.messages,
            "bytes_up": cost.bytes_up,
            "bytes_down": cost.bytes_down,
            "bytes_peer": cost.bytes_peer,
            "seconds": cost.seconds,
        }
        found += [
            Measurement(split="fleet", metric=f"{name}:{kind}", value=value) for name, value in values.items()
        ]
    for busy in ledger.busy:
        found.append(Measurement(split="fleet", metric="start", value=busy.start, client=busy.client))
        found.append(Measurement(split="fleet", metric="busy", value=busy.seconds, client=busy.client))
    return found


def cost_summary(ledger: Ledger) -> dict[str, Any]:
    """The ledger's totals, with what measuring cost apart."""
    whole = ledger.cost
    kinds = {**ledger.total, **{f"{kind} (measuring)": cost for kind, cost in ledger.measuring.items()}}
    return {
        "messages": whole.messages,
        "bytes_up": whole.bytes_up,
        "bytes_down": whole.bytes_down,
        "bytes_peer": whole.bytes_peer,
        "seconds": ledger.clock,
        "evaluation_bytes": sum(cost.bytes for cost in ledger.measuring.values()),
        "by_kind": {
            kind: {
                "messages": cost.messages,
                "bytes_up": cost.bytes_up,
                "bytes_down": cost.bytes_down,
                "bytes_peer": cost.bytes_peer,
                "seconds": cost.seconds,
            }
            for kind, cost in kinds.items()
        },
    }
