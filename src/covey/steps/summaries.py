"""What a client tells about its data: the label histogram P(y), and a feature histogram for each label P(X|y)."""

import numpy as np
from numpy.typing import NDArray

from covey.errors import UserError

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

CHUNK = 256  # samples whose features are binned at a time


def label_counts(y: NDArray[np.generic], *, labels: int, who: str = "the client") -> Array:
    """How many samples of each label of the agreed space 0..labels-1 there are."""
    return np.bincount(_checked(y, labels, who), minlength=labels).astype(np.float64)


def feature_counts(
    x: NDArray[np.floating],
    y: NDArray[np.generic],
    *,
    labels: int,
    bins: int,
    low: float,
    high: float,
    bound: float | None = None,
    who: str = "the client",
) -> Array:
    """For each label a histogram [labels, bins] of all feature values of its samples, over [low, high].

    Values outside the range count in the outermost bins. With `bound`, one sample adds at most that much to
    the whole table: each of its values counts bound / features instead of 1.
    """
    known = _checked(y, labels, who)
    table = np.zeros(labels * bins)
    for start in range(0, len(x), CHUNK):
        part = x[start : start + CHUNK].reshape(len(x[start : start + CHUNK]), -1)
        place = np.floor((part - low) * (bins / (high - low))).clip(0, bins - 1).astype(np.int64)
        place += known[start : start + CHUNK, None] * bins
        table += np.bincount(place.ravel(), minlength=len(table))
    return table.reshape(labels, bins) * (feature_sensitivity(x, bound) / feature_count(x))


def feature_count(x: NDArray[np.floating]) -> int:
    """How many feature values one sample has (pixels times channels)."""
    return int(np.prod(x.shape[1:]))


def feature_sensitivity(x: NDArray[np.floating], bound: float | None) -> float:
    """How much one sample changes a feature table (L1): all its values, or the bound if that is less."""
    return float(feature_count(x)) if bound is None else min(float(bound), float(feature_count(x)))


def _checked(y: NDArray[np.generic], labels: int, who: str) -> Integers:
    if len(y) == 0:
        raise UserError(f"{who} has no training data, so it has no summary.")
    if not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"{who} has targets of type {y.dtype}; a summary by label needs whole-number labels.")
    known = y.astype(np.int64)
    wrong = known[(known < 0) | (known >= labels)]
    if len(wrong):
        raise UserError(f"{who} has the label {wrong[0]}, outside the agreed label space 0 to {labels - 1}.")
    return known
