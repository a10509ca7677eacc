"""All methods by name; each is a short function that composes parts and reads like its paper."""

from __future__ import annotations

from collections.abc import Callable

from covey.core import Method
from covey.methods.baselines import centralized, fedavg, fedprox, local_only

MethodMaker = Callable[..., Method]

METHODS: dict[str, MethodMaker] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "local": local_only,
    "centralized": centralized,
}
