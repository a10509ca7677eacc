"""`reproduce --only ROW`: some rows of a stored result made again; the others stay, with their own commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from covey.errors import UserError
from covey.report.seeds import from_json
from experiments.execute import Made, Values, add_comparisons
from experiments.spec import Experiment


def only(experiment: Experiment, rows: Sequence[str]) -> Experiment:
    """The experiment with these rows alone."""
    if experiment.study:
        raise UserError(f"--only makes rows of an experiment again; {experiment.name} is a study")
    names = [row.name for row in experiment.rows]
    for name in rows:
        if name not in names:
            raise UserError(f"--only is {name!r}; allowed: {', '.join(names)}")
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
    for case, row in sorted(wanted):
        missing = set(experiment.columns) - set(values.get(case, {}).get(row, {}))
        if missing or stored["seeds"] != experiment.seeds:
            what = f"{case} {row}".strip() + (f", {sorted(missing)[0]}" if missing else "")
            raise UserError(
                f"--only needs all other rows of {experiment.name} stored with {experiment.seeds} seeds: "
                f"{what} is not; run it without --only"
            )
    runs = [run for run in stored["runs"] if (run["case"], run["row"]) in wanted]
    return Made(values=values, runs=runs, refused=refused)


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
