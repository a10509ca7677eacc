"""Making all the runs of an experiment; what is finished is not made again."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from covey.config import resolve
from covey.core import Watcher
from covey.errors import UserError
from covey.experiments.cells import ratios, read_cell, series
from covey.experiments.spec import Case, Experiment, Findings, Row
from covey.simulate import finished_summary, run_or_resume
from covey.writing import write_atomically

# case -> row -> column -> one value a seed
Values = dict[str, dict[str, dict[str, list[float | None]]]]
Curve = dict[str, list[float]]  # "x", "y"
Announce = Callable[[str, int], Any]  # title, rounds -> a context manager that yields a watcher


def run_folder(out: Path, case: Case, row: Row, seed: int) -> Path:
    """Where one run of the experiment lies."""
    return out / safe(case.name or "runs") / safe(row.name) / f"seed-{seed}"


def safe(name: str) -> str:
    """A name as a file name."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", name).strip("-") or "x"


def execute_runs(
    experiment: Experiment, out: Path, live: Announce, say: Callable[[str], None]
) -> tuple[Values, Any]:
    """All runs of the experiment; returns the numbers and the curves that the figure asks for."""
    values: Values = {}
    curves: dict[str, dict[str, list[Curve]]] = {}
    total = len(experiment.cases) * len(experiment.rows) * experiment.seeds
    number = 0
    for case in experiment.cases:
        for row in experiment.rows:
            for seed in range(experiment.seeds):
                number += 1
                config = resolve(experiment.tables(row, case, seed))
                folder = run_folder(out, case, row, seed)
                title = f"{number}/{total} {' '.join(filter(None, (case.name, row.name)))} seed {seed}"
                summary = finished_summary(folder)
                if summary is None or (folder / "config.toml").read_text() != config.toml():
                    with live(title, config.top.rounds) as watch:
                        watchers: list[Watcher] = [watch]
                        done = run_or_resume(config, folder, watchers=watchers, say=say, report=False)
                        summary = done.summary
                columns = values.setdefault(case.name, {}).setdefault(row.name, {})
                for column, what in experiment.columns.items():
                    if not what.startswith("ratio:"):
                        columns.setdefault(column, []).append(read_cell(what, summary, folder))
                if experiment.figure.get("kind") == "curves":
                    x, y = series(folder, experiment.figure["y"], experiment.figure.get("x", "round"))
                    curves.setdefault(case.name, {}).setdefault(row.name, []).append(
                        {"x": x.tolist(), "y": y.tolist()}
                    )
    add_ratios(values, experiment)
    return values, curves


def add_ratios(values: Values, experiment: Experiment) -> None:
    """Columns that compare a number with another run's of the same case and seed."""
    for name, what in experiment.columns.items():
        if what.startswith("ratio:"):
            column, _, base = what.removeprefix("ratio:").rpartition(":")
            for rows in values.values():
                if base in rows:
                    for cells in rows.values():
                        cells[name] = ratios(cells[column], rows[base][column])


def execute_study(experiment: Experiment, out: Path, say: Callable[[str], None]) -> tuple[Values, Any]:
    """The study with every seed; a finished seed is kept in a file and not made again."""
    module, _, function = experiment.study.partition(":")
    try:
        study = getattr(importlib.import_module(f"covey.experiments.studies.{module}"), function)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"{experiment.file}: study {experiment.study!r} is not in covey.experiments.studies"
        ) from error
    values: Values = {"": {}}
    curves: dict[str, dict[str, list[Curve]]] = {"": {}}
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(experiment.seeds):
        kept = out / f"seed-{seed}.json"
        key = json.dumps(dict(experiment.settings), sort_keys=True, default=str)
        found = json.loads(kept.read_text()) if kept.exists() else {}
        if found.get("settings") != key:
            say(f"{experiment.name}, seed {seed}")
            findings: Findings = study(dict(experiment.settings), seed)
            for name, draw in findings.pictures.items():
                draw(out / (name if seed == 0 else f"seed-{seed}-{name}"))
            found = {
                "settings": key,
                "rows": {row: dict(cells) for row, cells in findings.rows.items()},
                "curves": {
                    n: {"x": list(map(float, x)), "y": list(map(float, y))}
                    for n, (x, y) in findings.curves.items()
                },
            }
            write_atomically(kept, json.dumps(found))
        for row, cells in found["rows"].items():
            for column, value in cells.items():
                values[""].setdefault(row, {}).setdefault(column, []).append(value)
        for name, curve in found["curves"].items():
            curves[""].setdefault(name, []).append(curve)
    return values, curves
