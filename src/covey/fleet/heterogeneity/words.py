"""What the numbers of heterogeneity are called, which values are high, and what they mean."""

import math
from collections.abc import Mapping

# The name of each number, and what a large and a small value mean.
WORDS: Mapping[str, tuple[str, str, str]] = {
    "label_skew": (
        "label skew",
        "clients hold different labels",
        "labels are spread evenly, or nearly so",
    ),
    "feature_shift": (
        "feature shift",
        "a class looks different at other clients",
        "a class looks much the same everywhere",
    ),
    "concept_shift": (
        "concept shift",
        "what looks alike bears other labels at other clients",
        "a label means much the same everywhere",
    ),
    "label_noise": (
        "label noise",
        "at some clients labels say far less about the inputs than elsewhere: random labels, or poor inputs",
        "labels say as much about the inputs at every client, or nearly so",
    ),
    "size_skew": (
        "size skew",
        "some clients hold more samples",
        "clients hold about as many samples",
    ),
    "device_spread": (
        "device spread",
        "some devices are slower",
        "devices are about as fast",
    ),
}

# Below the first bound a number is low, above the second high; found on fleets whose heterogeneity is known
# (docs/choosing.md).
HETEROGENEITY_LEVELS: Mapping[str, tuple[float, float]] = {
    "label_skew": (0.05, 0.20),
    "feature_shift": (0.15, 0.40),
    "concept_shift": (0.10, 0.30),
    "label_noise": (0.10, 0.20),
    "size_skew": (0.25, 0.50),
    "device_spread": (0.50, 1.50),
}


def level_of(name: str, value: float) -> str:
    """low, middle or high; unknown where there is no number."""
    low, high = HETEROGENEITY_LEVELS[name]
    if math.isnan(value):
        return "unknown"
    return "low" if value < low else "high" if value > high else "middle"


def meaning(name: str, value: float, low: float | None = None, high: float | None = None) -> str:
    """The number in a few words, no surer than its interval."""
    _, much, little = WORDS[name]
    bound = HETEROGENEITY_LEVELS[name][0]
    low, high = (value if end is None else end for end in (low, high))
    if math.isnan(value):
        return "cannot be told: too few clients share classes that can be compared"
    if high < bound:
        return little
    if low >= bound:
        return much
    if low < 0.01:  # as it is printed, the interval holds none at all
        return f"perhaps: {much}" if value >= bound else "none seen, but it cannot be ruled out"
    return f"likely: {much}" if value >= bound else "some, probably little"
