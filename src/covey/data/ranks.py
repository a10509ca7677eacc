"""Numbers of a table by their rank among the training rows, so that a few large ones do not make all others alike."""

import math
from collections.abc import Sequence

import numpy as np

from covey.arrays import Array

STEPS = 32  # of a rank


def quantiles_of(numbers: Array) -> tuple[float, ...]:
    """The numbers at equal steps of the rank, the least and the largest with them."""
    return tuple(np.quantile(numbers, np.linspace(0, 1, STEPS + 1)).tolist())


def ascend(quantiles: Sequence[float]) -> bool:
    """Whether these are two finite numbers or more, none below the one before."""
    return len(quantiles) > 1 and all(map(math.isfinite, quantiles)) and list(quantiles) == sorted(quantiles)


def ranks(quantiles: Sequence[float], numbers: Array) -> Array:
    """The rank of every number, 0 to 1, on lines between the quantiles; NaN stays NaN.

    Equal quantiles are one number of many rows, whose rank is their middle.
    """
    known, place = np.unique(quantiles, return_inverse=True)
    steps = np.linspace(0, 1, len(quantiles))
    found: Array = np.interp(numbers, known, np.bincount(place, steps) / np.bincount(place))
    return found
