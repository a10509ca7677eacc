"""Numbers of several seeds as stored results have them."""

from typing import Any

from covey.report.seeds import Bound, Number


def to_json(number: Number) -> Any:
    """A bound as {"over": 512.3}."""
    return {number.side: number.value} if isinstance(number, Bound) else number


def from_json(value: Any) -> Number:
    if isinstance(value, dict):
        ((side, number),) = value.items()
        return Bound(float(number), side)
    return None if value is None else float(value)
