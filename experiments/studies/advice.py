"""Whether what `covey advise` says of fleets with known answers is true."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from covey.arrays import Array
from covey.core.round import run_rounds
from covey.fleet.heterogeneity.class_geometry import described
from covey.fleet.heterogeneity.class_means import sketches, table_of_classes
from covey.fleet.heterogeneity.measure import (
    EXACT_SIZE,
    Heterogeneity,
    HeterogeneityMeasure,
    measure_heterogeneity,
)
from covey.runs.advise import ALONE, REFERENCE, Advice, conclude, known_fleets
from covey.runs.config import fleet_of, resolve
from covey.runs.objects import data_tables
from experiments.spec import Findings
from experiments.studies.advice_fleets import Generated, generate, true_shifts, true_skew

MEASURED = ("label_skew", "feature_shift", "concept_shift", "label_noise")


def sentences(settings: dict[str, Any], seed: int) -> Findings:
    """Test fleets: how many sentences of each sort were said, how many were false, and what the advice lost."""
    said: dict[str, list[bool]] = {}
    lost: dict[str, list[float]] = {"regret": [], "regret after the check": [], "unsure": [], "told": []}
    first = settings["first"] + seed * settings["fleets"]
    for number in range(first, first + settings["fleets"]):
        fleet = generate(number, "test")
        found = measured(fleet, settings)
        advice = conclude(found, known_fleets())
        runs = {name: accuracies(fleet, name, settings, number) for name in settings["methods"]}
        for name in (advice.method, advice.other):
            if name is not None and name not in runs:
                runs[name] = accuracies(fleet, name, settings, number)
        for sort, true in {**judged(fleet, found), **judged_gains(advice, runs)}.items():
            said.setdefault(sort, []).append(true)
        rivals = {name: values for name, values in runs.items() if name != ALONE}
        lost["regret"].append(regret(rivals, advice.method))
        other = advice.other or advice.method
        lost["regret after the check"].append(min(regret(rivals, advice.method), regret(rivals, other)))
        lost["unsure"].append(float(advice.other is not None))
        lost["told"].append(float(bool(advice.gains)))
    rows = {
        sort: {"sentences": float(len(true)), "false": float(len(true) - sum(true))}
        for sort, true in sorted(said.items())
    }
    rows["all"] = {column: sum(row[column] for row in rows.values()) for column in ("sentences", "false")}
    for row in rows.values():
        row["false, %"] = 100 * row["false"] / row["sentences"]
    return Findings(
        rows=rows | {f"mean over fleets: {name}": {"value": mean(of)} for name, of in lost.items()}
    )


def mean(values: list[float]) -> float:
    """Of a list."""
    return float(np.mean(values))


def tables(fleet: Generated, method: str, settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The configuration of a method on a fleet."""
    some = {} if method == ALONE else {"per_round": settings["per_round"]}
    return {
        **settings["run"],
        **data_tables(fleet.data),
        "seed": seed,
        "method": {"name": method, **some},
    }


def measured(fleet: Generated, settings: Mapping[str, Any]) -> Heterogeneity:
    """What `covey advise` measures."""
    asked = fleet_of(resolve(tables(fleet, REFERENCE, settings, 0)))
    try:
        return measure_heterogeneity(asked)
    finally:
        asked.close()


def accuracies(fleet: Generated, method: str, settings: Mapping[str, Any], seed: int) -> Array:
    """Of each client on its own test data, after the last round."""
    config = resolve(tables(fleet, method, settings, seed))
    here = fleet_of(config)
    try:
        state = run_rounds(config.method, here, rounds=config.top.rounds)
        values = config.measure(config.method, state, here, True)
    finally:
        here.close()
    one = {v.client: v.value for v in values if (v.split, v.metric) == ("local-test", "accuracy")}
    return np.array([one[client] for client in range(len(fleet.data.shares))])


# ---------------------------------------------------------------------------------------------- true or false


def judged(fleet: Generated, found: Heterogeneity) -> dict[str, bool]:
    """Of every measure that is told, whether the truth lies in the interval as it is printed."""
    labels = fleet.shares.shape[1]
    held = []
    for share in fleet.data.shares:
        x, y = share.train.tensors()
        halves = np.arange(len(y)) % 2
        held.append(
            described(
                table_of_classes(sketches(x.numpy(), EXACT_SIZE), y.numpy(), halves, labels), 0.0
            ).classes
        )
    named, right, concept = true_shifts(fleet, held)
    truth = {
        "label_skew": true_skew(fleet.shares),
        # where it cannot be told whether names differ, it is said of classes as they are called
        "feature_shift": right if found.concept_shift.known else named,
        "concept_shift": concept,
        "label_noise": float(fleet.noisy.mean()),
    }
    told = {name: getattr(found, name) for name in MEASURED}
    return {name.replace("_", " "): within(told[name], truth[name]) for name in MEASURED if told[name].known}


def within(measure: HeterogeneityMeasure, truth: float) -> bool:
    """Whether the truth lies in the interval, rounded outward to two digits as it is printed."""
    low, high = math.floor(100 * measure.low) / 100, math.ceil(100 * measure.high) / 100
    return low - 1e-9 <= truth <= high + 1e-9


def judged_gains(advice: Advice, runs: Mapping[str, Array]) -> dict[str, bool]:
    """Of every gain that is told, whether the measured one may lie in the interval: its own interval reaches it."""
    judged = {}
    for name, gain in advice.gains.items():
        low, high = interval(runs[name] - runs[REFERENCE])
        sort = (
            "each client alone"
            if name == ALONE
            else "gain of the advised"
            if name == advice.method
            else "other"
        )
        judged[sort.replace("other", "gain of the other")] = high >= round(gain.low) and low <= round(
            gain.high
        )
    return judged


def interval(gaps: Array) -> tuple[float, float]:
    """Mean over clients in points, less and more two standard errors."""
    half = 2 * gaps.std(ddof=1) / math.sqrt(len(gaps))
    return 100 * float(gaps.mean() - half), 100 * float(gaps.mean() + half)


def regret(runs: Mapping[str, Array], method: str) -> float:
    """What the best of those that are better beyond the paired interval over clients is ahead, in points."""
    ahead = [
        100 * float((other - runs[method]).mean())
        for other in runs.values()
        if interval(other - runs[method])[0] > 0
    ]
    return max(ahead, default=0.0)
