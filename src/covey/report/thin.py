"""Fewer points, columns and digits than were measured, so that a page stays small."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 600
MOST_COLUMNS = 480
MOST_DOTS = 400
MOST_BARS = 24_000
MOST_BARS_A_ROUND = 160
MOST_GROUPS = 12
MOST_NAMES = 5000  # of clients


def short(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """Numbers with few significant digits for JSON, where null stands for what is not finite."""
    return [short_one(float(value), digits) for value in values]


def short_one(value: float, digits: int = 5) -> float | None:
    """One number with few significant digits; whole numbers as such."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


def evenly(count: int, most: int) -> NDArray[np.intp]:
    """At most `most` places out of `count`, evenly spread, the first and the last among them."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.intp))


def chunks(order: Sequence[int], most: int) -> list[list[int]]:
    """Neighbours in `order` put together so that at most `most` columns remain."""
    return [
        part.tolist()
        for part in np.array_split(np.asarray(order, dtype=np.int64), min(len(order), most) or 1)
    ]


def plain(value: Any) -> Any:
    """A note as strict JSON: numbers shortened, what is not finite as null."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return short_one(value) if isinstance(value, float) else value
