"""Making all the runs of an experiment; what is finished is not made again."""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.core.round import Watcher
from covey.errors import UserError
from covey.files import write_atomically
from covey.folder.place import finished_summary
from covey.folder.summary import Summary
from covey.report.seeds import Number, differences, ratios, value_of
from covey.runs.config import Config, resolve
from covey.runs.run import run_or_resume
from experiments.cells import OF_SEVERAL_RUNS, first_over, read_cell, series
from experiments.origin import (
    changed,
    fingerprint,
    origin,
    read_origin,
    same_sources,
    storable,
    write_origin,
)
from experiments.spec import Case, Experiment, Findings, Row
from experiments.stored_numbers import from_json, to_json

# case -> row -> column -> one value per seed
Values = dict[str, dict[str, dict[str, list[Number]]]]
# case, row, seed -> where that run comes from, and its numbers by column
StoredRuns = Mapping[tuple[str, str, int], tuple[Mapping[str, Any], Mapping[str, Number]]]
Curve = dict[str, list[float]]  # "x", "y"
Announce = Callable[[str, int], Any]  # title, rounds -> a context manager that yields a watcher


@dataclass(frozen=True, kw_only=True)
class Made:
    """What an experiment's runs gave: numbers, the figure's curves, and where each run comes from."""

    values: Values = field(default_factory=dict)
    curves: dict[str, dict[str, list[Curve]]] = field(default_factory=dict)  # case -> row -> one per seed
    runs: list[dict[str, Any]] = field(default_factory=list)  # case, row, seed, and its origin
    refused: dict[tuple[str, str], str] = field(default_factory=dict)  # (case, row) -> covey's sentence


def run_folder(out: Path, case: Case, row: Row, seed: int, config: Config) -> Path:
    """Where one run of the experiment lies; other settings have another place."""
    place = f"seed-{seed}-{fingerprint(config.toml())[:8]}"
    return out / safe(case.name or "runs") / safe(row.name) / place


def safe(name: str) -> str:
    """A name as a file name."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", name).strip("-") or "x"


def execute_runs(
    experiment: Experiment,
    out: Path,
    live: Announce,
    say: Callable[[str], None],
    kept: Values | None = None,
    stored: StoredRuns | None = None,
) -> Made:
    """All runs of the experiment; `kept` are other rows' numbers, which participate in who is the best.

    A run that is among the `stored` ones is not made again.
    """
    made = Made()
    every = [
        (case, row, seed)
        for case in experiment.cases
        for row in experiment.rows
        for seed in range(case.seeds)
    ]
    folders: dict[tuple[str, str, int], Path] = {}
    for number, (case, row, seed) in enumerate(every, start=1):
        if case.name in row.refused:
            made.refused[case.name, row.name] = refusal(experiment, row, case)
            columns = made.values.setdefault(case.name, {}).setdefault(row.name, {})
            columns |= {column: [None] * case.seeds for column in experiment.columns}
            continue
        columns = made.values.setdefault(case.name, {}).setdefault(row.name, {})
        if stored and (case.name, row.name, seed) in stored:
            run, numbers = stored[case.name, row.name, seed]
            made.runs.append(dict(run))
            for column, value in numbers.items():
                columns.setdefault(column, []).append(value)
            continue
        config = resolve(experiment.tables(row, case, seed))
        folder = run_folder(out, case, row, seed, config)
        title = f"{number}/{len(every)} {' '.join(filter(None, (case.name, row.name)))} seed {seed}"
        summary = one_run(config, folder, functools.partial(live, title), say)
        made.runs.append({"case": case.name, "row": row.name, "seed": seed, **read_origin(folder)})
        for column, what in experiment.columns.items():
            if not what.startswith(OF_SEVERAL_RUNS):
                columns.setdefault(column, []).append(read_cell(what, summary, folder))
        if experiment.figure.get("kind") == "curves":
            x, y = series(folder, experiment.figure["y"], experiment.figure.get("x", "round"))
            made.curves.setdefault(case.name, {}).setdefault(row.name, []).append(
                {"x": x.tolist(), "y": y.tolist()}
            )
        folders[case.name, row.name, seed] = folder
    add_reached(made.values, experiment, folders, kept or {})
    add_comparisons(made.values, experiment)
    return made


def refusal(experiment: Experiment, row: Row, case: Case) -> str:
    """The sentence with which covey refuses a run, as the experiment says it must."""
    try:
        resolve(experiment.tables(row, case, 0))
    except UserError as error:
        return str(error)
    raise UserError(f"{experiment.file}: run {row.name!r} is said to be refused in {case.name!r}, and is not")


def cpu_seconds() -> float:
    """Of this process so far, and of its workers that have ended."""
    return sum(os.times()[:4])


def one_run(
    config: Config, folder: Path, watch: Callable[[int], Any], say: Callable[[str], None] | None
) -> Summary:
    """The summary of the run in this folder, which is made, or gone on with, unless it is finished.

    An unfinished run of other sources, and one of changed sources where the present ones are clean, starts anew.
    """
    before = read_origin(folder)
    if folder.exists():
        summary = finished_summary(folder)
        same = summary is not None and (folder / "config.toml").read_text(encoding="utf-8") == config.toml()
        good = storable(before) or bool(changed())
        if summary is not None and same and good:
            return summary
        if not (same_sources(before) and good):
            shutil.rmtree(folder)
            before = {}
    spent, started = float(before.get("cpu_seconds", 0.0)), cpu_seconds()

    def note_origin(_: Any = None) -> None:
        if folder.exists():
            cost = round(spent + cpu_seconds() - started, 2)
            write_origin(folder, {**origin(config.toml()), "cpu_seconds": cost})

    with watch(config.top.rounds) as watcher:
        watchers: list[Watcher] = [watcher, note_origin]
        done_run = run_or_resume(config, folder, watchers=watchers, say=say, report=False)
    note_origin()
    return done_run.summary


def add_reached(
    values: Values, experiment: Experiment, folders: Mapping[tuple[str, str, int], Path], kept: Values
) -> None:
    """Columns that say when a run reached 90 % of what the best run of the same case and seed had in the end."""
    ended = {what.removeprefix("last:"): column for column, what in experiment.columns.items()}
    for column, what in experiment.columns.items():
        kind, _, rest = what.partition(":")
        if kind != "best90":
            continue
        unit, _, name = rest.partition(":")
        for case, rows in values.items():
            for seed in range(next(c.seeds for c in experiment.cases if c.name == case)):
                ends = [series(folders[case, row, seed], name)[1][-1:] for row in rows]
                found = [float(end[0]) for end in ends if len(end)]
                others = [cells[ended[name]][seed] for cells in kept.get(case, {}).values() if name in ended]
                found += [value_of(other) for other in others if other is not None]
                level = 0.9 * max(found, default=math.inf)
                for row, cells in rows.items():
                    cells.setdefault(column, []).append(
                        first_over(folders[case, row, seed], name, unit, level)
                    )


def add_comparisons(values: Values, experiment: Experiment) -> None:
    """Columns that compare a number with another run's of the same case and seed."""
    for name, what in experiment.columns.items():
        kind, _, rest = what.partition(":")
        if kind in ("ratio", "difference"):
            compare = ratios if kind == "ratio" else differences
            column, _, base = rest.rpartition(":")
            for rows in values.values():
                if base in rows:
                    for cells in rows.values():
                        cells[name] = compare(cells[column], rows[base][column])


def the_study(experiment: Experiment) -> Callable[[dict[str, Any], int], Findings]:
    """The function that the experiment names."""
    module, _, function = experiment.study.partition(":")
    try:
        found: Callable[[dict[str, Any], int], Findings] = getattr(
            importlib.import_module(f"experiments.studies.{module}"), function
        )
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"{experiment.file}: study {experiment.study!r} is not in experiments.studies"
        ) from error
    return found


def settings_key(experiment: Experiment) -> str:
    """A study's settings as text, the same for the same settings."""
    return json.dumps({"study": experiment.study, **experiment.settings}, sort_keys=True, default=str)


def execute_study(experiment: Experiment, out: Path, say: Callable[[str], None]) -> Made:
    """The study with every seed; a finished seed is kept in a file and not made again."""
    study, key = the_study(experiment), settings_key(experiment)
    made = Made(values={"": {}}, curves={"": {}})
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(experiment.seeds):
        kept = out / f"seed-{seed}.json"
        found = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
        if found.get("settings") != key or not (storable(found.get("origin", {})) or changed()):
            say(f"{experiment.name}, seed {seed}")
            started = cpu_seconds()
            findings = study(dict(experiment.settings), seed)
            for name, draw in findings.pictures.items():
                draw(out / (name if seed == 0 else f"seed-{seed}-{name}"))
            found = {
                "settings": key,
                "origin": {**origin(key), "cpu_seconds": round(cpu_seconds() - started, 1)},
                "rows": {
                    row: {column: to_json(cell) for column, cell in cells.items()}
                    for row, cells in findings.rows.items()
                },
                "curves": {
                    n: {"x": list(map(float, x)), "y": list(map(float, y))}
                    for n, (x, y) in findings.curves.items()
                },
            }
            write_atomically(kept, json.dumps(found))
        made.runs.append({"case": "", "row": "", "seed": seed, **found["origin"]})
        for row, cells in found["rows"].items():
            for column, value in cells.items():
                made.values[""].setdefault(row, {}).setdefault(column, []).append(from_json(value))
        for name, curve in found["curves"].items():
            made.curves[""].setdefault(name, []).append(curve)
    return made
