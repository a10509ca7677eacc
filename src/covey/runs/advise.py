"""Which method for this fleet: concluded from the scoreboard's fleets that are unlike in the same way.

The evidence, `advice.json`, is made of the stored results `covey/scoreboard` (every method on every fleet) and
`covey/heterogeneity` (how heterogeneous these fleets are) by `python -m experiments advice`. What is expected of a
method here is the mean of its gains over FedAvg there, nearer fleets counting more.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from covey.parts.heterogeneity import Heterogeneity
from covey.parts.heterogeneity_words import LEVELS

EVIDENCE = Path(__file__).parent / "advice.json"
REFERENCE = "fedavg"
ALONE = "local"  # trains everybody in every round: a reference, not advice
NEAR = 0.35  # how fast the weight of another fleet falls, in units of what makes a number high
FAR = 2.0  # beyond that a number says the same: it is very high
ENOUGH = 0.005  # a gain of less than half a point over FedAvg is not worth another method


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fleet of the scoreboard: how unlike it is, and each method's mean accuracy, bytes and seconds over seeds."""

    fleet: str
    heterogeneity: Heterogeneity
    accuracy: Mapping[str, float]
    bytes: Mapping[str, float]
    seconds: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The method to use, what each method is expected to gain over FedAvg, and from which fleets that is concluded."""

    method: str
    gains: Mapping[str, float]  # in accuracy, best first
    rows: Sequence[tuple[Row, float]]  # with their weights, nearest first
    bytes: float  # as a multiple of FedAvg's, where the scoreboard has both
    seconds: float

    @property
    def avoid(self) -> list[str]:
        """What is expected to be worse than FedAvg by more than a point."""
        return [name for name, gain in self.gains.items() if gain < -2 * ENOUGH and name != ALONE]


def advise(found: Heterogeneity, rows: Sequence[Row]) -> Advice:
    """The method with the largest expected accuracy; FedAvg, the simplest, where none gains enough or all are alike."""
    weighed = sorted(
        ((row, nearness(found, row.heterogeneity)) for row in rows), key=lambda pair: pair[1], reverse=True
    )
    gains = expected(weighed, lambda row, name: row.accuracy[name] - row.accuracy[REFERENCE])
    method = max((name for name in gains if name != ALONE), key=lambda name: gains[name])
    if gains[method] < ENOUGH or alike(found):
        method = REFERENCE
    cost = {
        what: math.exp(expected(weighed, functools.partial(log_ratio, what)).get(method, 0.0))
        for what in ("bytes", "seconds")
    }
    ordered = dict(sorted(gains.items(), key=lambda pair: -pair[1]))
    return Advice(method=method, gains=ordered, rows=weighed, **cost)


def alike(found: Heterogeneity) -> bool:
    """Whether nothing about the clients' data calls for more than one plain average."""
    return all(found.level(name) == "low" for name in ("label_skew", "feature_shift", "concept_shift"))


def nearness(one: Heterogeneity, other: Heterogeneity) -> float:
    """exp(-d^2 / (2 NEAR^2)), d the distance of the two fleets' numbers; numbers that noise hides are left out."""
    squares = []
    for name, (_, high) in LEVELS.items():
        a, b = (min(getattr(u, name) / high, FAR) for u in (one, other))
        if not (math.isnan(a) or math.isnan(b)):
            squares.append((a - b) ** 2)
    return math.exp(-sum(squares) / (2 * NEAR**2)) if squares else 1.0


def expected(weighed: Sequence[tuple[Row, float]], value: Any) -> dict[str, float]:
    """The weighted mean of a value of each method over the rows that have it."""
    found = {}
    floor = 1e-6 * max((weight for _, weight in weighed), default=1.0)
    for name in dict.fromkeys(name for row, _ in weighed for name in row.accuracy):
        having = [(value(row, name), weight + floor) for row, weight in weighed if name in row.accuracy]
        having = [(number, weight) for number, weight in having if not math.isnan(number)]
        if having:
            numbers, weights = zip(*having, strict=True)
            found[name] = float(np.average(numbers, weights=weights))
    return found


def log_ratio(what: str, row: Row, name: str) -> float:
    """The logarithm of a cost as a multiple of FedAvg's; nan where either is not known."""
    costs: Mapping[str, float] = getattr(row, what)
    ours, base = costs.get(name, math.nan), costs.get(REFERENCE, math.nan)
    return math.log(ours / base) if ours > 0 and base > 0 else math.nan


def regrets(rows: Sequence[Row]) -> dict[str, tuple[str, float]]:
    """For each fleet what would be advised from all the others, and what that loses to the best method in hindsight."""
    lost = {}
    for row in rows:
        others = [other for other in rows if other.fleet != row.fleet]
        method = advise(row.heterogeneity, others).method
        best = max(value for name, value in row.accuracy.items() if name != ALONE)
        lost[row.fleet] = (method, best - row.accuracy[method])
    return lost


# ---------------------------------------------------------------------------------------------- the evidence


def evidence() -> list[Row]:
    """The scoreboard's fleets, as `python -m experiments advice` wrote them into the package."""
    rows = json.loads(EVIDENCE.read_text())
    return [Row(**{**row, "heterogeneity": Heterogeneity(**row["heterogeneity"])}) for row in rows]
