"""What stays of a stored result, with its own commits: `--only ROW` makes some rows again, `--more` what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from covey.errors import UserError
from covey.report.seeds import Number
from experiments.execute import Made, StoredRuns, Values, add_comparisons
from experiments.spec import Experiment
from experiments.stored_numbers import from_json


def rows_named(experiment: Experiment, said: Sequence[str]) -> tuple[str, ...]:
    """The rows' whole names; the beginning of a name will do where only one row has it."""
    names = [row.name for row in experiment.rows]
    found = []
    for name in said:
        fits = [row for row in names if row == name] or [row for row in names if row.startswith(name)]
        if len(fits) != 1:
            raise UserError(
                f"--only is {name!r}; allowed, whole or as far as no other begins so: {', '.join(names)}"
            )
        found += fits
    return tuple(found)


def only(experiment: Experiment, rows: Sequence[str]) -> Experiment:
    """The experiment with these rows alone."""
    if experiment.study:
        raise UserError(f"--only makes rows of an experiment again; {experiment.name} is a study")
    return replace(experiment, rows=tuple(row for row in experiment.rows if row.name in rows))


def kept_of(experiment: Experiment, rows: Sequence[str], stored: Mapping[str, Any]) -> Made:
    """What is stored of the other rows; one sentence where the experiment now has something that is not stored."""
    others = {row.name for row in experiment.rows} - set(rows)
    wanted = {(case.name, row) for case in experiment.cases for row in others}
    values: Values = {}
    refused: dict[tuple[str, str], str] = {}
    for cell in stored["cells"]:
        where = (cell["case"], cell["row"])
        if where in wanted and cell["column"] in experiment.columns:
            numbers = [from_json(value) for value in cell["values"]]
            values.setdefault(where[0], {}).setdefault(where[1], {})[cell["column"]] = numbers
            if "refused" in cell:
                refused[where] = cell["refused"]
    seeds = {case.name: case.seeds for case in experiment.cases}
    for case, row in sorted(wanted):
        found = values.get(case, {}).get(row, {})
        missing = [column for column in experiment.columns if len(found.get(column, ())) != seeds[case]]
        if missing:
            raise UserError(
                f"--only needs all other rows of {experiment.name} stored with {seeds[case]} seeds: "
                f"{', '.join(filter(None, (case, row, missing[0])))} is not; run it without --only"
            )
    runs = [run for run in stored["runs"] if (run["case"], run["row"]) in wanted]
    return Made(values=values, runs=runs, refused=refused)


def stored_runs(experiment: Experiment, stored: Mapping[str, Any]) -> StoredRuns:
    """The runs of a stored result, for `--more`; one sentence where its columns are of more than one run's end.

    A figure then shows the new runs alone, as with `--only`: curves are not stored.
    """
    apart = [column for column, what in experiment.columns.items() if what.startswith("best90")]
    if experiment.study or apart:
        what = "a study" if experiment.study else f"the column {apart[0]!r}"
        raise UserError(f"--more adds to tables of single runs; {experiment.name} has {what}: run it without")
    tuned = {one["row"] for one in stored.get("tuning", ())}
    for row in experiment.rows:
        if experiment.tune and row.tries and row.name not in tuned:
            raise UserError(f"--more keeps what tuning found, and {row.name!r} was not tuned: use --only")
    numbers: dict[tuple[str, str], dict[str, list[Number]]] = {}
    for cell in stored["cells"]:
        if "comparison" not in cell:
            values = list(map(from_json, cell["values"]))
            numbers.setdefault((cell["case"], cell["row"]), {})[cell["column"]] = values
    return {
        (run["case"], run["row"], run["seed"]): (
            run,
            {column: values[run["seed"]] for column, values in numbers[run["case"], run["row"]].items()},
        )
        for run in stored["runs"]
    }


def tuning_of(rows: Sequence[str], stored: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the tries of the other rows found, as it is stored."""
    return [one for one in stored.get("tuning", ()) if one["row"] not in rows]


def together(experiment: Experiment, kept: Made, made: Made) -> Made:
    """Kept and new rows in the experiment's order; comparisons between rows are made anew."""
    order = [row.name for row in experiment.rows]
    values: Values = {}
    for case in experiment.cases:
        found = {**kept.values.get(case.name, {}), **made.values.get(case.name, {})}
        values[case.name] = {row: found[row] for row in order if row in found}
    add_comparisons(values, experiment)
    place = {case.name: number for number, case in enumerate(experiment.cases)}
    runs = sorted([*kept.runs, *made.runs], key=lambda run: (place[run["case"]], order.index(run["row"])))
    return Made(values=values, curves=made.curves, runs=runs, refused={**kept.refused, **made.refused})
