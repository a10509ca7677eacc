"""How heterogeneous the clients of known fleets are: what `covey advise` compares a fleet with."""

from __future__ import annotations

import math
from typing import Any

from covey.fleet.heterogeneity.measure import measure_heterogeneity
from covey.parts.steps.privacy import Privacy
from covey.runs.config import fleet_of, resolve
from experiments.spec import Findings, read_experiment


def known_fleets(settings: dict[str, Any], seed: int) -> Findings:
    """One row for each case of the experiments `of` (all cases, or those listed); `epsilon` 0: exact."""
    epsilon = settings.get("epsilon") or None
    rows = {}
    for name, cases in settings["of"].items():
        experiment = read_experiment(name, settings["scale"])
        for case in experiment.cases:
            if cases and case.name not in cases:
                continue
            fleet = fleet_of(resolve(experiment.tables(experiment.rows[0], case, seed)))
            try:
                found = measure_heterogeneity(fleet, privacy=Privacy(epsilon=epsilon))
                table = float(bool(fleet.data and fleet.data.dataset.features))
            finally:
                fleet.close()
            numbers = {**found.numbers(), "samples": found.samples, "separation": found.separation}
            numbers |= {"label noise known": float(found.label_noise.known), "table": table}
            rows[f"{name}: {case.name}"] = {
                what.replace("_", " "): round(value, 4)
                for what, value in numbers.items()
                if not math.isnan(value)
            }
    return Findings(rows=rows)
