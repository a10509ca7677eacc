"""What the numbers of heterogeneity are called, which values are high, and what they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping

# The name of each number, and what a large, a small and no value mean. A small conflict is told in words of what can be
# seen: rotated pictures alone make some (a 6 is a 9), and a feature shift can hide some.
WORDS = {
    "label_skew": (
        "label skew",
        "clients hold different labels",
        "label shares differ a little",
        "labels are shared out evenly",
    ),
    "feature_shift": (
        "feature shift",
        "a class looks different at other clients",
        "a class looks a little different at other clients",
        "a class looks the same everywhere",
    ),
    "concept_shift": (
        "concept shift",
        "like samples bear other labels",
        "little or no conflict of labels can be seen",
        "a label means the same everywhere",
    ),
    "size_skew": (
        "size skew",
        "some clients hold far more samples",
        "sizes differ a little",
        "clients hold about as many samples",
    ),
    "device_spread": (
        "device spread",
        "some devices are far slower",
        "speeds differ a little",
        "devices are about as fast",
    ),
}
NOTHING = 0.25  # of the bound below which a number is low: less than that is nothing

# Below the first bound a number is low, above the second high; read off fleets whose kind is known (docs/choosing.md).
LEVELS: Mapping[str, tuple[float, float]] = {
    "label_skew": (0.10, 0.35),
    "feature_shift": (0.10, 0.30),
    "concept_shift": (0.25, 0.50),
    "size_skew": (0.25, 0.50),
    "device_spread": (0.50, 1.50),
}


def level_of(name: str, value: float) -> str:
    """low, middle or high; hidden where the noise is larger than what there is to see."""
    low, high = LEVELS[name]
    if math.isnan(value):
        return "hidden"
    return "low" if value < low else "high" if value > high else "middle"


def meaning(name: str, value: float) -> str:
    """The number in a few words."""
    _, much, little, nothing = WORDS[name]
    low = nothing if value < NOTHING * LEVELS[name][0] else little
    return {"low": low, "hidden": "the noise hides it"}.get(level_of(name, value), much)
