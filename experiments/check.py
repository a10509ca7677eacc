"""`python -m experiments reproduce --check`: one run of a stored result made again, and every number of it compared."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from covey.errors import UserError
from covey.report.seeds import Bound, Number, value_of
from covey.runs.config import resolve
from experiments.cells import OF_SEVERAL_RUNS, read_cell
from experiments.execute import one_run, settings_key, the_study
from experiments.origin import origin
from experiments.result import read_stored
from experiments.spec import Experiment, read_experiment
from experiments.stored_numbers import from_json
from experiments.tuning import with_tuned

# What guard.norm was by default until updates were shortened; results of before are made again with it.
GUARD_BEFORE = 10.0


def before() -> str:
    """The old default in words."""
    return f"guard.norm = {GUARD_BEFORE:g}, the default when it was made"


@dataclass(frozen=True, kw_only=True)
class Check:
    """What one run gave when it was stored and gives now."""

    name: str
    run: Mapping[str, Any]  # case, row, seed, and where the stored run comes from (as far as it is known)
    now: Mapping[str, Any]  # the origin of the new run
    stored: Mapping[str, Number]
    found: Mapping[str, Number]
    under: str = ""  # a default of before, with which the numbers are the same and without which they are not

    @property
    def differs(self) -> list[str]:
        """The columns that are not the same, but for rounding."""
        return [column for column, value in self.stored.items() if not close(value, self.found.get(column))]

    @property
    def differences(self) -> list[str]:
        """The columns that are not the same, and by how much: new kernels round differently, a mistake differs more."""
        found = []
        for column in self.differs:
            a, b = self.stored[column], self.found.get(column)
            if a is None or b is None:
                found.append(column)
            else:
                found.append(f"{column} by {abs(value_of(a) - value_of(b)):.1g}")
        return found

    @property
    def changed(self) -> list[str]:
        """What is not as it was: config, sources, instructions."""
        return [key for key in ("config", "sources", "instructions") if self.run.get(key) != self.now[key]]


def close(a: Number, b: Number) -> bool:
    """Whether two numbers are the same but for rounding; a whole one is stored as any other, a bound is none."""
    if a is None or b is None:
        return a is b
    if (a.side if isinstance(a, Bound) else "") != (b.side if isinstance(b, Bound) else ""):
        return False
    return abs(value_of(a) - value_of(b)) <= 1e-9 * max(1.0, abs(value_of(a)))


def check_experiment(name: str, scale: str, rows: Sequence[str] = ()) -> Check:
    """The cheapest run of the stored result (or of some of its rows), made again in a folder that is thrown away."""
    stored = of_rows(read_stored(name, scale), rows)
    experiment = with_tuned(read_experiment(name, scale, stored["seeds"]), stored.get("tuning", ()))
    with tempfile.TemporaryDirectory() as folder:
        if experiment.study:
            return check_study(experiment, stored)
        return check_run(experiment, stored, Path(folder))


def check_run(experiment: Experiment, stored: Mapping[str, Any], folder: Path) -> Check:
    run = cheapest(stored)
    row = next((row for row in experiment.rows if row.name == run["row"]), None)
    case = next((case for case in experiment.cases if case.name == run["case"]), None)
    if row is None or case is None:
        raise UserError(
            f"{experiment.name}: the stored run {run['case']} {run['row']} is no longer in {experiment.file}"
        )
    numbers = {
        cell["column"]: from_json(cell["values"][run["seed"]])
        for cell in stored["cells"]
        if (cell["case"], cell["row"]) == (case.name, row.name) and "comparison" not in cell
    }
    plain = {
        column: what
        for column, what in experiment.columns.items()
        if column in numbers and not what.startswith(OF_SEVERAL_RUNS)
    }

    def again(tables: Mapping[str, Any], place: Path) -> Check:
        config = resolve(tables)
        summary = one_run(config, place, lambda _: contextlib.nullcontext(lambda _: None), None)
        return Check(
            name=experiment.name,
            run=run,
            now=origin(config.toml()),
            stored={column: numbers[column] for column in plain},
            found={column: read_cell(what, summary, place) for column, what in plain.items()},
        )

    tables = experiment.tables(row, case, run["seed"])
    check = again(tables, folder / "run")
    guard = tables.get("guard", {})
    if check.differs and "norm" not in guard:
        older = again({**tables, "guard": {**guard, "norm": GUARD_BEFORE}}, folder / "older")
        if not older.differs:
            return replace(older, under=before())
    return check


def of_rows(stored: dict[str, Any], rows: Sequence[str]) -> dict[str, Any]:
    """The stored result with the runs of these rows alone; of all, where none are named."""
    made = sorted({run["row"] for run in stored.get("runs", ())})
    for row in rows:
        if row not in made:
            raise UserError(
                f"--only is {row!r}; stored runs are of: {', '.join(filter(None, made)) or 'no row'}"
            )
    return {**stored, "runs": [run for run in stored["runs"] if run["row"] in rows]} if rows else stored


def cheapest(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The stored run that took the least time; of an old file, which does not say, the first."""
    if stored.get("runs"):
        return dict(min(stored["runs"], key=lambda run: run["cpu_seconds"]))
    first = stored["cells"][0]
    return {"case": first["case"], "row": first["row"], "seed": 0}


def check_study(experiment: Experiment, stored: Mapping[str, Any]) -> Check:
    """The cheapest seed of a study; where its numbers differ, with the old bound on updates as well."""
    settings = dict(experiment.settings)
    check = study_again(experiment, stored, settings)
    base = settings.get("base")
    if not check.differs or not isinstance(base, Mapping) or "norm" in base.get("guard", {}):
        return check
    guard = {**base.get("guard", {}), "norm": GUARD_BEFORE}
    older = study_again(experiment, stored, {**settings, "base": {**base, "guard": guard}})
    return check if older.differs else replace(older, under=before())


def study_again(experiment: Experiment, stored: Mapping[str, Any], settings: dict[str, Any]) -> Check:
    """One seed of the study with these settings, beside what was stored."""
    run = cheapest(stored)
    findings = the_study(experiment)(settings, run["seed"])
    found = {
        f"{row}: {column}": value for row, cells in findings.rows.items() for column, value in cells.items()
    }
    numbers: dict[str, Number] = {}
    for cell in stored["cells"]:
        if cell["column"] in experiment.timed:
            continue
        name, values = f"{cell['row']}: {cell['column']}", list(map(from_json, cell["values"]))
        if len(values) == stored["seeds"]:
            numbers[name] = values[run["seed"]]
        elif (
            name in found
        ):  # a row that not every seed has: which values are whose is not kept, one must be this
            numbers[name] = next((value for value in values if close(value, found[name])), values[0])
    return Check(
        name=experiment.name, run=run, now=origin(settings_key(experiment)), stored=numbers, found=found
    )
