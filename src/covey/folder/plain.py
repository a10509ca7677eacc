"""Plain values of a JSON file as the dataclasses that they were written from, by the annotations of these."""

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


def read_as(kind: Any, value: Any) -> Any:
    """A value of a JSON file as the type that it was written from; what only looks like one is a TypeError.

    null is a number that is not finite, and 3.0 the whole number 3.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is UnionType:  # T | None
        return None if value is None else read_as(inner[0], value)
    if kind is float and value is None:
        return math.nan
    if hasattr(kind, "from_plain"):
        return kind.from_plain(value)
    if is_dataclass(kind):
        return of_plain(kind, value)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    wanted: Any = {float: (int, float), tuple: list, Mapping: dict}.get(origin or kind, kind)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        raise TypeError
    if origin is tuple:
        if inner[-1] is not Ellipsis and len(value) != len(inner):
            raise TypeError
        return tuple(read_as(inner[0], one) for one in value)
    if origin is Mapping:
        return {key: read_as(inner[1], one) for key, one in value.items()}
    if kind is int and not -(2**63) <= value < 2**63:
        raise TypeError
    return float(value) if kind is float else value


def of_plain(kind: Any, value: Mapping[str, Any]) -> Any:
    """A dataclass of its plain values; what is absent has its default."""
    if not isinstance(value, dict):
        raise TypeError
    hints = get_type_hints(kind)
    return kind(**{name: read_as(hint, value[name]) for name, hint in hints.items() if name in value})
