"""A configuration as one table: `train.lr` -> 0.1, as trackers list settings."""

from collections.abc import Mapping
from typing import Any


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every setting by its full name; what is none is the text "none", lists are texts."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        elif isinstance(value, bool | int | float | str):
            found[name] = value
        else:
            found[name] = "none" if value is None else str(value)
    return found
