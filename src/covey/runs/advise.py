"""Which method suits this fleet: concluded from known fleets that are heterogeneous in a similar way.

What is known, `advice.json`, is made of stored results by `python -m experiments advice`: every method's accuracy on
the fleets of the benchmark, the scoreboard and the design half of the natural suite. A method's expected gain over
FedAvg is the mean of its gains there, similar fleets counting more; its interval says how much these gains differ.
"""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from covey.arrays import Array
from covey.core import Fleet
from covey.fleet.heterogeneity.measure import Heterogeneity, HeterogeneityMeasure, measure_heterogeneity
from covey.fleet.heterogeneity.words import HETEROGENEITY_LEVELS, WORDS, level_of, meaning
from covey.parts.steps.privacy import Privacy

EVIDENCE = Path(__file__).parent / "advice.json"
REFERENCE = "fedavg"
ALONE = "local"  # trains everybody in every round: a reference, not advice
NOT_ADVISED = (ALONE, "centralized")

# Chosen on generated design fleets (docs/evidence/advice.md).
NEAR: Mapping[str, float] = {
    "label_skew": 0.10,
    "feature_shift": 0.15,
    "concept_shift": 0.06,
    "label_noise": 0.08,
    "samples": 0.5,  # powers of ten, as the next
    "separation": 0.3,
    "table": 0.5,
}
MEASURED = ("label_skew", "feature_shift", "concept_shift", "label_noise")
ENOUGH = 0.5  # similar fleets, counted by their weights, from which gains are told
# DOUBT of a fleet is added to what is known, on which gains over FedAvg have a deviation of SPREAD points (OF_TABLES
# less), and two other methods are APART
DOUBT, SPREAD, OF_TABLES, APART = 0.3, 10.0, 5.0, 2.0
WIDTH = 2.0  # deviations to either side of a gain
WORTH = 0.5  # points: a smaller gain over FedAvg is not worth another method
LEVEL = 1.0  # points that another method may be better where the advice is called sure


@dataclass(frozen=True, kw_only=True)
class KnownFleet:
    """How heterogeneous a fleet is (nan: unknown), and every method's mean accuracy on it over seeds, in percent."""

    fleet: str
    features: Mapping[str, float]
    accuracy: Mapping[str, float]


@dataclass(frozen=True)
class Gain:
    """Points of accuracy on the clients' own test data over FedAvg: expected, and the interval.

    Two deviations to either side were right 77 of 78 times on design fleets, 183 of 210 times on others: called 80 %.
    """

    expected: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{round(self.low):+d} to {round(self.high):+d}"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What `covey.advise` says: print it for its sentences.

    Args:
        heterogeneity: how the clients differ, with intervals.
        method: the method to use, or the first to try.
        other: the second to try, where what is known cannot tell the two apart; else None.
        gains: of these two and of each client alone, over FedAvg; empty where no known fleet is similar.
        similar: known fleets and how similar they are (1: the same), most similar first.

    Examples:
        >>> advice = covey.advise("digits", clients=12, partition={"name": "dir-class", "alpha": 0.3})
        >>> len(advice.sentences()) > 1
        True
    """

    heterogeneity: Heterogeneity
    method: str
    other: str | None
    gains: Mapping[str, Gain]
    similar: Sequence[tuple[str, float]]

    def __str__(self) -> str:
        return "\n".join([*numbers(self.heterogeneity.measures()), "", *self.sentences()])

    def sentences(self) -> list[str]:
        """What follows for the choice of a method."""
        said = [
            f"Use {self.method}."
            if self.other is None
            else f"Not sure: try {self.method} and {self.other} (--check, or covey.compare, settles it)."
        ]
        if only_noisy(self.heterogeneity):
            said.append("A model of a client's own learns its random labels; one for all learns them less.")
        if not self.gains:
            return [*said, "No known fleet is similar: nothing is said about gains."]
        told = [f"{name} {gain}" for name, gain in self.gains.items() if name not in (REFERENCE, ALONE)]
        alone = [f"Each client alone: {gain}." for name, gain in self.gains.items() if name == ALONE]
        if told:
            said.append(f"Points of accuracy over FedAvg (80 %): {', '.join(told)}.")
        nearest = "; ".join(f"{fleet} ({weight:.2f})" for fleet, weight in self.similar[:3])
        return [*said, *alone, f"Most similar of the known fleets: {nearest}."]


def numbers(found: Mapping[str, HeterogeneityMeasure]) -> list[str]:
    """The numbers with their intervals, and what they mean."""
    said = ["How heterogeneous these clients are (95 % intervals)"]
    for name, one in found.items():
        words = meaning(name, one.value, one.low, one.high)
        if not one.known:
            shown = "?"
            if not math.isnan(one.value):
                words = "cannot be told: the clients are too few, or other differences hide it"
        elif one.low == one.high:
            shown = f"{one.value:.2f}"
        else:  # outward: what is printed is no narrower than what is known
            low, high = math.floor(100 * one.low) / 100, math.ceil(100 * one.high) / 100
            shown = f"{one.value:.2f} [{low:.2f}, {high:.2f}]"
        said.append(f"  {WORDS[name][0]:<14} {shown:<18} {words}")
    return said


def advise_fleet(fleet: Fleet, *, epsilon: float | None = None) -> Advice:
    """Asks all clients that can be reached once (under noise with an `epsilon`), and concludes from what is known."""
    found = measure_heterogeneity(fleet, privacy=Privacy(epsilon=epsilon))
    return conclude(found, known_fleets(), table=bool(fleet.data and fleet.data.dataset.features))


def features_of(found: Heterogeneity, *, table: bool) -> dict[str, float]:
    """What fleets are compared by: the measures of their data, their samples and classes, whether they are tables."""
    features = {name: getattr(found, name).value for name in MEASURED}
    if not found.label_noise.known:
        features["label_noise"] = math.nan
    for name in ("samples", "separation"):
        value = getattr(found, name)
        features[name] = math.log10(value) if value > 0 else math.nan
    return {**features, "table": float(table)}


def conclude(found: Heterogeneity, known: Sequence[KnownFleet], *, table: bool = False) -> Advice:
    """The method with the largest expected gain, or two, where what is known does not tell them apart."""
    features = features_of(found, table=table)
    weights = np.array([similarity(features, fleet.features) for fleet in known])
    near = bool(weights.sum() >= ENOUGH)
    # far from everything known all fleets of this sort count alike
    counted = weights if near else np.array([float(fleet.features["table"] == table) for fleet in known])
    first, second = ranked(known, counted)
    sure = near and (second is None or surely_behind(known, counted, second, first))
    other = None if sure else second
    if only_noisy(found) and first != REFERENCE:
        first, other = REFERENCE, first
    told = [name for name in (first, other, ALONE) if name not in (None, REFERENCE)]
    order = np.argsort(-weights)
    return Advice(
        heterogeneity=found,
        method=first,
        other=other,
        gains={name: gain(known, weights, name, table=table) for name in told} if near else {},
        similar=[(known[i].fleet, float(weights[i])) for i in order],
    )


def only_noisy(found: Heterogeneity) -> bool:
    """Whether some clients' labels look random, and clients differ in nothing else that would need own models."""
    others = all(level_of(name, getattr(found, name).value) == "low" for name in MEASURED[:3])
    return (
        others and found.label_noise.known and found.label_noise.low >= HETEROGENEITY_LEVELS["label_noise"][0]
    )


def similarity(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """exp(-d^2 / 2), d the distance of the features in units of NEAR; an unknown measure counts as one unit apart."""
    apart = [(one[name] - other[name]) / unit for name, unit in NEAR.items()]
    return math.exp(-sum(1.0 if math.isnan(gap) else gap**2 for gap in apart) / 2)


def differences(known: Sequence[KnownFleet], weights: Array, method: str, base: str) -> tuple[Array, Array]:
    """By how much a method was better than another, in points, on the fleets that have both; and their weights."""
    both = [
        (fleet.accuracy[method] - fleet.accuracy[base], weight)
        for fleet, weight in zip(known, weights, strict=True)
        if method in fleet.accuracy and base in fleet.accuracy
    ]
    return np.array([gap for gap, _ in both]), np.array([weight for _, weight in both])


def mean_and_deviation(gaps: Array, weights: Array, spread: float) -> tuple[float, float]:
    """Weighted; the deviation is that of a fleet like these, when DOUBT of one with this spread is added to them."""
    total = float(weights.sum())
    mean = float(weights @ gaps / total) if total > 0 else 0.0
    return mean, math.sqrt((weights @ (gaps - mean) ** 2 + DOUBT * spread**2) / (total + DOUBT))


def gain(known: Sequence[KnownFleet], weights: Array, method: str, *, table: bool = False) -> Gain:
    """Expected over FedAvg, with its interval."""
    spread = OF_TABLES if table else SPREAD
    mean, deviation = mean_and_deviation(*differences(known, weights, method, REFERENCE), spread)
    return Gain(mean, mean - WIDTH * deviation, mean + WIDTH * deviation)


def ranked(known: Sequence[KnownFleet], weights: Array) -> tuple[str, str | None]:
    """The best method, and the next.

    Methods are known on different fleets, so that their mean gains cannot be compared. The best of those that are
    known on all fleets goes first, unless another was better by more than a standard error where both are known.
    """
    names = list(dict.fromkeys(name for fleet in known for name in fleet.accuracy if name not in NOT_ADVISED))
    everywhere = [name for name in names if all(name in fleet.accuracy for fleet in known)]
    means = {
        name: mean_and_deviation(*differences(known, weights, name, REFERENCE), SPREAD)[0]
        for name in everywhere
    }
    anchor = max(means, key=lambda name: means[name])
    if means[anchor] < WORTH:
        anchor = REFERENCE
    tried = {name: against(known, weights, name, anchor) for name in names if name != anchor}
    beside = {name: found for name, found in tried.items() if found is not None}
    if not beside:
        return anchor, None
    rival = max(beside, key=lambda name: beside[name][0])
    mean, error = beside[rival]
    return (rival, anchor) if mean - error > 0 and anchor != REFERENCE else (anchor, rival)


def against(
    known: Sequence[KnownFleet], weights: Array, method: str, base: str
) -> tuple[float, float] | None:
    """The mean difference of two methods and its standard error; None where too few similar fleets have both."""
    gaps, counted = differences(known, weights, method, base)
    total = counted.sum()
    if total < ENOUGH or len(gaps) < 2:
        return None
    mean, deviation = mean_and_deviation(gaps, counted, APART)
    return mean, deviation / math.sqrt(total**2 / (counted**2).sum())


def surely_behind(known: Sequence[KnownFleet], weights: Array, method: str, base: str) -> bool:
    """Whether a method is at most LEVEL points better than another, in 19 of 20 cases."""
    found = against(known, weights, method, base)
    return found is not None and found[0] + 1.645 * found[1] < LEVEL


@functools.cache
def known_fleets() -> tuple[KnownFleet, ...]:
    """As `python -m experiments advice` wrote them into the package."""
    return tuple(
        KnownFleet(
            fleet=row["fleet"],
            features={name: row["features"].get(name, math.nan) for name in NEAR},
            accuracy=row["accuracy"],
        )
        for row in json.loads(EVIDENCE.read_text())
    )
