"""Smoothing of curves before they are drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

STEPS = 1000  # the x axis is as long as this many steps, whatever its unit


def smoothed(x: Sequence[float], y: Sequence[float], weight: float) -> list[float]:
    """Exponential moving average that counts distance on the x axis, not points, and is not biased to its start.

    out_j = (sum over i <= j of a^(d_ij) y_i) / (sum of a^(d_ij)), a = min(sqrt(weight), 0.999), and d_ij the distance
    of the two points where the whole axis is 1000 long.
    """
    a = min(weight**0.5, 0.999)
    span = (x[-1] - x[0]) or 1.0 if len(x) else 1.0
    total = count = 0.0
    result = []
    for place, value in enumerate(y):
        faded = a ** ((x[place] - x[max(place - 1, 0)]) / span * STEPS)
        total, count = total * faded + value, count * faded + 1
        result.append(total / count)
    return result


def kernel_smoothed(y: Sequence[float], width: float) -> list[float]:
    """Gaussian kernel smoother: out_j = sum_i K_ij y_i / sum_i K_ij, K_ij = exp(-(i - j)^2 / (2 width^2)).

    `width` is counted in points; divided by the weights that there are, so that the ends are not bent.
    """
    values, places = np.asarray(y, dtype=float), np.arange(len(y))
    kernel = np.exp(-((places[:, None] - places) ** 2) / (2 * width**2))
    return (kernel @ values / kernel.sum(axis=1)).tolist()  # type: ignore[no-any-return]
