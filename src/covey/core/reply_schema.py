"""Which statistics an answer holds and in what range: checked before any method sees them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from covey.data.types import Scale
from covey.training.objective import LARGEST

ROUNDING = 1e-6  # by which a sum may miss its bounds


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the server itself knows of a client, by which its answers are measured.

    classes: of the server's own data. shape, scale: of its samples. train, test: samples that the client said it has
    when it first came (in a simulation: that it has). lowest_loss: what no loss of the run's objective falls below.
    models: how many came with the question. row, learned: how many values a model has, and how many of them are
    trained. None: of any length.
    """

    classes: int = 0
    shape: tuple[int, ...] = ()
    scale: Scale | None = None
    train: int = 2**63 - 1
    test: int = 2**63 - 1
    lowest_loss: float = -LARGEST
    models: int | None = None
    row: int | None = None
    learned: int | None = None

    @property
    def most(self) -> int:
        """Samples that can stand behind one answer."""
        return max(self.train, self.test)


@dataclass(frozen=True, kw_only=True)
class Stat:
    """The range of one statistic: a number, or with a `shape` an array (None: of any length in that direction).

    total: what the entries of an array, or of each of its last rows, must add up to at least and at most. direction: it
    moves a model, so that the guard bounds its length beside the others' as it does an update's.
    """

    low: float = -LARGEST
    high: float = LARGEST
    whole: bool = False
    shape: tuple[int | None, ...] = ()
    total: tuple[float, float] | None = None
    optional: bool = False
    direction: bool = False


SHARE = Stat(low=0.0, high=1.0)
EPSILON = Stat(low=0.0, high=math.inf, optional=True)  # a summary without noise spends an infinite one


def objection(stats: Mapping[str, Any], expected: Mapping[str, Stat]) -> str:
    """Why these statistics cannot be used, or an empty string; those that nobody expects must only be finite."""
    for name, stat in expected.items():
        if name not in stats and not stat.optional:
            return f"its {name} is missing"
    for name, value in stats.items():
        why = _why_not(value, expected.get(name) or (EPSILON if name == "epsilon" else None))
        if why:
            return f"its {name} {why}"
    return ""


def _why_not(value: Any, stat: Stat | None) -> str:
    if stat is None:
        return _not_finite(value)
    if stat.shape:
        return _wrong_array(value, stat)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"is {_short(value)}, not a number"
    if math.isnan(value):
        return f"is {value}"
    if stat.whole and value != int(value) if math.isfinite(value) else stat.whole:
        return f"is {value}, not a whole number"
    if not stat.low <= value <= stat.high:
        return f"is {value:.6g}; it must lie in {stat.low:.6g} to {stat.high:.6g}"
    return ""


def _wrong_array(value: Any, stat: Stat) -> str:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
        return f"is {_short(value)}, not an array of numbers"
    fits = len(value.shape) == len(stat.shape) and all(
        wanted in (None, size) for wanted, size in zip(stat.shape, value.shape, strict=False)
    )
    if not fits:
        wanted = tuple("any" if size is None else size for size in stat.shape)
        return f"has shape {value.shape}, not {wanted}"
    if value.size and not (stat.low <= value.min() and value.max() <= stat.high):  # NaN is in no range
        return (
            f"holds {value.min():.6g} to {value.max():.6g}; it must lie in {stat.low:.6g} to {stat.high:.6g}"
        )
    if stat.total is not None:
        sums = value.sum(axis=-1, dtype=np.float64)
        low, high = stat.total
        if not ((sums >= low - ROUNDING) & (sums <= high + ROUNDING)).all():
            return f"adds up to {np.min(sums):.6g}; it must be {low:.6g} to {high:.6g}"
    return ""


def _not_finite(value: Any) -> str:
    if isinstance(value, float) and not abs(value) <= LARGEST:
        return f"is {value}"
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not (np.abs(value) <= LARGEST).all():
        return "holds NaN, infinity or numbers beyond those of a model"
    if isinstance(value, Tensor) and value.is_floating_point() and not bool(value.isfinite().all()):
        return "holds NaN or infinity"
    if isinstance(value, list | tuple):
        return next((why for part in value if (why := _not_finite(part))), "")
    return ""


def _short(value: Any) -> str:
    return f"a {type(value).__name__}"
