"""Clients that join in the middle of a run: how good are the models that serve them at once?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from covey.core.round import RoundEnd, run_rounds, served
from covey.parts.steps import Evaluate
from covey.runs.config import Config, fleet_of, resolve
from experiments.spec import Findings
from experiments.studies.pictures import of_curves


def unseen(settings: dict[str, Any], seed: int) -> Findings:
    """Accuracy of clients that join in the middle of a run, from the round on in which they join."""
    late = {"clients": settings["clients"], "round": settings["join"], "labels": settings.get("labels", True)}
    rows, curves = {}, {}
    for name, method in settings["methods"].items():
        tables = {**settings["run"], "method": method, "devices": {"joins": [late]}, "seed": seed}
        values = accuracy_of(resolve(tables), settings["clients"])
        rounds = list(range(settings["join"], settings["join"] + len(values)))
        rows[name] = {"in their first round": values[0], "in the last round": values[-1]}
        curves[name] = (rounds, values)
    picture = of_curves(
        curves, x_label="round", y_label="accuracy of the unseen clients", title="Clients that join late"
    )
    return Findings(rows=rows, curves=curves, pictures={"unseen-clients.png": picture})


def accuracy_of(config: Config, clients: Sequence[int]) -> list[float]:
    """Mean local-test accuracy of these clients with the models that serve them, in each round that they are there."""
    found: list[float] = []

    def look(end: RoundEnd) -> None:
        there = [i for i in end.fleet.members() if i in clients]
        tasks = served(end.method, end.state, end.fleet, there) if there else {}
        replies = end.fleet.ask(Evaluate(), tasks, measure=True) if tasks else []
        if replies:
            found.append(float(np.mean([reply.stats["accuracy"] for reply in replies])))

    fleet = fleet_of(config)
    try:
        run_rounds(config.method, fleet, rounds=config.top.rounds, watchers=[look])
    finally:
        fleet.close()
    return found
