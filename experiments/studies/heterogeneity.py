"""How heterogeneous the clients of every fleet of the scoreboard are: what `covey advise` compares a fleet with."""

from __future__ import annotations

from typing import Any

from covey.parts.heterogeneity import measure_heterogeneity
from covey.parts.steps.privacy import Privacy
from covey.runs.config import fleet_of, resolve
from experiments.spec import Findings, read_experiment


def scoreboard(settings: dict[str, Any], seed: int) -> Findings:
    """One row for each case of the experiment `of`, at its `scale`; `epsilon` 0: exact."""
    experiment = read_experiment(settings["of"], settings["scale"])
    epsilon = settings.get("epsilon") or None
    rows = {}
    for case in experiment.cases:
        fleet = fleet_of(resolve(experiment.tables(experiment.rows[0], case, seed)))
        try:
            found = measure_heterogeneity(fleet, privacy=Privacy(epsilon=epsilon))
        finally:
            fleet.close()
        rows[case.name] = {name.replace("_", " "): round(value, 4) for name, value in found.numbers().items()}
    return Findings(rows=rows)
