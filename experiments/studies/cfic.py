"""CFIC's experiments that are not plain runs: rounds to FedAvg's accuracy (Fig. 3), and poisoned clients."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covey.core.round import Method, run_rounds
from covey.parts.measure import Measuring
from covey.parts.steps.poison import Poisoned
from covey.report.seeds import Bound, Number
from covey.runs.config import fleet_of, resolve
from experiments.cells import series
from experiments.execute import one_run, run_folder
from experiments.spec import Case, Experiment, Findings, read_experiment

ACCURACY = "global-test/accuracy"

Curve = tuple[np.ndarray, np.ndarray]  # rounds, values


def rounds_to_fedavg(settings: Mapping[str, Any], seed: int) -> Findings:
    """How many rounds each method needs to reach FedAvg's accuracy of the last `tail` measured rounds.

    Read off the runs of `tables` (name -> scale), of all their `cases` and `methods` or of these alone, which are made
    if they are not there.
    """
    rows: dict[str, dict[str, Number]] = {}
    for table in (read_experiment(name, scale) for name, scale in settings["tables"].items()):
        for case in table.cases:
            if case.name not in settings.get("cases", [case.name]):
                continue
            curves = curves_of(table, case, settings.get("methods"), seed)
            target = curves["FedAvg"][1][-int(settings["tail"]) :].mean()
            for name, (rounds, accuracy) in curves.items():
                reached = rounds[accuracy >= target]
                rows.setdefault(name, {})[case.name] = (
                    float(reached[0]) if len(reached) else Bound(float(rounds[-1]))
                )
    return Findings(rows=rows)


def curves_of(table: Experiment, case: Case, methods: Sequence[str] | None, seed: int) -> dict[str, Curve]:
    """Accuracy by round of the table's methods, or of those that are named."""
    folder = Path("runs") / "reproduce" / table.runs_in / table.scale
    curves = {}
    for row in table.rows:
        if methods is None or row.name in methods:
            config = resolve(table.tables(row, case, seed))
            place = run_folder(folder, case, row, seed, config)
            one_run(config, place, lambda _: contextlib.nullcontext(lambda _: None), None)
            curves[row.name] = series(place, ACCURACY)
    return curves


def poison(settings: Mapping[str, Any], seed: int) -> Findings:
    """Accuracy after some rounds with `hostile` of the clients spoiling their updates, for each combine and attack."""
    rows: dict[str, dict[str, float]] = {}
    for name, own in settings["methods"].items():
        method = {key: value for key, value in own.items() if key != "robust"}
        rule = {"robust": own["robust"]} if "robust" in own else {}
        tables = {**settings["base"], "seed": seed, "method": method, **rule}
        config = resolve(tables)
        clients = config["data"]["clients"]
        hostile = np.random.default_rng(seed).choice(clients, size=settings["hostile"], replace=False)
        made = config.method
        for attack in ("none", "scale", "flip", "nan"):
            bad = tuple(int(i) for i in hostile) if attack != "none" else ()
            spoiled = replace(
                made,
                local=Poisoned(
                    local=made.local,
                    clients=bad,
                    attack=attack if bad else "flip",  # type: ignore[arg-type]
                ),
            )
            rows.setdefault(name, {})[NAMES[attack]] = accuracy_after(spoiled, config)
    return Findings(rows=rows)


NAMES = {"none": "nobody hostile", "scale": "update x 1000", "flip": "sign flipped", "nan": "NaN"}


def accuracy_after(method: Method, config: Any) -> float:
    """The global model's accuracy after the configured rounds; that it is finite is checked every round."""
    fleet = fleet_of(config)
    found = [0.0]

    def watch(end: Any) -> None:
        if not bool(torch.isfinite(end.state.models).all()):
            raise AssertionError("NaN or infinity reached the bank")
        found.append(end.value("global-test", "accuracy") or found[-1])

    try:
        measure = Measuring(every=config.top.rounds, local_test=False)
        run_rounds(method, fleet, rounds=config.top.rounds, measure=measure, watchers=[watch])
    finally:
        fleet.close()
    return found[-1]
