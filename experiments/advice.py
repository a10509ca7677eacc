"""What `covey advise` concludes from, out of the stored results: one file that the package carries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from covey.parts.heterogeneity import Heterogeneity
from covey.runs.advise import Row
from experiments.result import read_stored
from experiments.spec import Experiment, read_experiment

SCOREBOARD, MEASURED, SCALE = "covey/scoreboard", "covey/heterogeneity", "small"


def text() -> str:
    """The file: one row for each fleet of the scoreboard."""
    return json.dumps([asdict(row) for row in rows()], indent=1, allow_nan=False) + "\n"


def rows() -> list[Row]:
    """The scoreboard's fleets as stored; a `UserError` says how to make them where they are not."""
    scores, measured = read_stored(SCOREBOARD, SCALE), read_stored(MEASURED, SCALE)
    experiment = read_experiment(SCOREBOARD, SCALE)
    methods = {row.name: str(row.set.get("method", {}).get("name", row.name)) for row in experiment.rows}
    headline = next(iter(experiment.columns))
    fleets = dict.fromkeys(cell["case"] for cell in scores["cells"])
    return [
        Row(
            fleet=fleet,
            heterogeneity=heterogeneity_of(measured, fleet),
            accuracy=by_method(scores, fleet, headline, methods),
            bytes=by_method(scores, fleet, column_of(experiment, "cost:bytes"), methods),
            seconds=by_method(scores, fleet, column_of(experiment, "cost:seconds"), methods),
        )
        for fleet in fleets
        if any(cell["row"] == fleet for cell in measured["cells"])
    ]


def column_of(experiment: Experiment, what: str) -> str:
    """The column that reads this off a run; empty where there is none."""
    return next((name for name, spec in experiment.columns.items() if spec == what), "")


def by_method(
    result: Mapping[str, Any], fleet: str, column: str, methods: Mapping[str, str]
) -> dict[str, float]:
    """The mean over seeds for each method that has one."""
    found: dict[str, float] = {}
    for cell in result["cells"]:
        values = [value for value in cell["values"] if isinstance(value, int | float)]
        if (cell["case"], cell["column"]) == (fleet, column) and values and cell["row"] in methods:
            found.setdefault(methods[cell["row"]], float(np.mean(values)))
    return found


def heterogeneity_of(result: Mapping[str, Any], fleet: str) -> Heterogeneity:
    """The stored numbers of one fleet, each the mean over seeds."""
    values = {c["column"]: c["values"] for c in result["cells"] if c["row"] == fleet}
    return Heterogeneity(
        **{
            name: float(np.mean(values[name.replace("_", " ")]))
            for name in Heterogeneity.__dataclass_fields__
        }
    )
