"""What `covey advise` concludes from, out of the stored results: one file that the package carries.

Fleets of the benchmark, the scoreboard and the design half of the natural suite, never its report half. Drifting fleets
are left out: what changes later cannot be measured before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from covey.fleet.heterogeneity.measure import Heterogeneity, HeterogeneityMeasure
from covey.report.seeds import paired
from covey.runs.advise import MEASURED, NOT_ADVISED, KnownFleet, conclude, features_of
from experiments.result import read_stored
from experiments.spec import read_experiment

SCALE = "small"
HETEROGENEITY, TREES = "covey/heterogeneity", "trees/tables"
LATER = ("drift",)
Values = dict[str, list[float]]


def text() -> str:
    """The file: one row for each known fleet."""
    rows = [
        {
            "fleet": fleet.fleet,
            "features": {k: round(v, 3) for k, v in fleet.features.items() if not math.isnan(v)},
            "accuracy": {k: round(v, 2) for k, v in fleet.accuracy.items()},
        }
        for fleet in compared()
    ]
    return "[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in rows) + "\n]\n"


def compared() -> list[KnownFleet]:
    """The fleets of the stored comparisons; a `UserError` says how to make them where they are not stored."""
    seeds, found = accuracies(), measured()
    return [
        KnownFleet(
            fleet=fleet,
            features=features_of(found[fleet][0], table=found[fleet][1]),
            accuracy={method: 100 * value for method, value in level_means(seeds[fleet]).items()},
        )
        for fleet in seeds
    ]


def level_means(seeds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Means over seeds; of a method with fewer than the others, as far from their mean as on the seeds that it has."""
    most = max(map(len, seeds.values()))
    usual = np.mean([values for values in seeds.values() if len(values) == most], axis=0)
    return {
        method: float(np.mean(values) - usual[: len(values)].mean() + usual.mean())
        for method, values in seeds.items()
    }


def accuracies() -> dict[str, dict[str, list[float]]]:
    """By fleet and method, one for each seed."""
    found: dict[str, dict[str, list[float]]] = {}
    for fleet in measured():
        name, case = fleet.split(": ", 1)
        if case in LATER:
            continue
        result, experiment = read_stored(name, SCALE), read_experiment(name, SCALE)
        methods = {row.name: str(row.set.get("method", {}).get("name", row.name)) for row in experiment.rows}
        cells = [cell for cell in result["cells"] if cell["case"] == case]
        headline = next(iter(experiment.columns))
        found[fleet] = {methods[cell["row"]]: seeds_of(cell) for cell in cells if cell["column"] == headline}
        found[fleet] |= trees_on(case)
    return found


def trees_on(table: str) -> dict[str, list[float]]:
    """Accuracies of boosting, where the table is known."""
    found = {}
    for cell in read_stored(TREES, SCALE)["cells"]:
        case, _, method = cell["row"].partition(": ")
        if (
            case == table
            and cell["column"] == "accuracy"
            and method in ("boosting", "boosting-personal", "bagging")
        ):
            found[method] = seeds_of(cell)
    return found


def seeds_of(cell: Mapping[str, Any]) -> list[float]:
    """The values of a cell."""
    return [float(value) for value in cell["values"] if isinstance(value, int | float)]


def measured() -> dict[str, tuple[Heterogeneity, bool]]:
    """How heterogeneous the fleets are, means over seeds, and whether they are tables."""
    rows: dict[str, Values] = {}
    for cell in read_stored(HETEROGENEITY, SCALE)["cells"]:
        rows.setdefault(cell["row"], {})[cell["column"].replace(" ", "_")] = seeds_of(cell)
    return {fleet: (as_measures(values), bool(np.mean(values["table"]))) for fleet, values in rows.items()}


def as_measures(values: Values) -> Heterogeneity:
    """The stored numbers of a fleet; label noise that cannot be told has an interval that says so."""
    numbers = {name: float(np.mean(of)) for name, of in values.items() if of}
    unsure = numbers.get("label_noise_known", 0.0) < 1
    return Heterogeneity(
        **{
            name: HeterogeneityMeasure(numbers.get(name, math.nan))
            for name in (*MEASURED[:3], "size_skew", "device_spread")
        },
        label_noise=HeterogeneityMeasure(numbers.get("label_noise", math.nan), 0.0, 1.0 if unsure else 0.0),
        samples=numbers.get("samples", math.nan),
        separation=numbers.get("separation", math.nan),
    )


# ---------------------------------------------------------------------------------------------- regret


def regrets() -> dict[str, tuple[str, str | None, float]]:
    """For each compared fleet what is advised from all the others, and what that loses, in points (see `lost`)."""
    fleets, seeds, found = compared(), accuracies(), measured()
    result = {}
    for fleet, values in seeds.items():
        measures, table = found[fleet]
        advice = conclude(measures, [one for one in fleets if one.fleet != fleet], table=table)
        advised = advice.method if advice.method in values else advice.other or ""
        result[fleet] = (advice.method, advice.other, lost(values, advised))
    return result


def lost(values: Mapping[str, Sequence[float]], method: str) -> float:
    """What the best of those that are better beyond the paired 95 % interval over seeds is ahead, in points."""
    ahead = [0.0]
    for name, others in values.items():
        if name in (method, *NOT_ADVISED) or method not in values:
            continue
        seeds = min(len(others), len(values[method]))
        test = paired(values[method][:seeds], others[:seeds])
        if test is not None and test.distinguishable and test.difference > 0:
            ahead.append(100 * test.difference)
    return max(ahead)
