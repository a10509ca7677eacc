"""What the numbers of unlikeness are called, which values are high, and what they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping

# The name of each number, and what a large and a small one mean.
WORDS = {
    "label_skew": ("label skew", "clients hold different labels", "labels are shared out evenly"),
    "feature_shift": (
        "feature shift",
        "a class looks different at other clients",
        "a class looks the same everywhere",
    ),
    "concept_conflict": (
        "concept conflict",
        "like samples bear other labels",
        "a label means the same everywhere",
    ),
    "size_skew": ("size skew", "some clients hold far more samples", "clients hold about as many samples"),
    "device_spread": ("device spread", "some devices are far slower", "devices are about as fast"),
}

# Below the first bound a number is low, above the second high; read off fleets whose kind is known (docs/choosing.md).
LEVELS: Mapping[str, tuple[float, float]] = {
    "label_skew": (0.10, 0.35),
    "feature_shift": (0.10, 0.30),
    "concept_conflict": (0.25, 0.50),
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
    _, much, little = WORDS[name]
    return {"low": little, "hidden": "the noise hides it"}.get(level_of(name, value), much)
