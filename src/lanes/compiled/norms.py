"""Channels shifted and scaled: by batch normalisation, or by fixed numbers."""

import math
from typing import Any

import numpy as np

from lanes.compiled.emit import LANES
from lanes.compiled.jit import jit
from lanes.compiled.native import at, f32, f64, int64, mix, moments, products, scale
from lanes.compiled.update import finish


@jit
def live_sum(s: Any, total: Any, b: int) -> Any:
    """The sum over the lanes of block b that have a sample."""
    t = 0.0
    for lane in range(min(LANES, s.size - b * LANES)):
        t += f64(total[lane])
    return t


@jit
def norm(s: Any, c: Any, b0: int, b1: int) -> None:
    """With the mean and variance of this batch, which also move the running ones."""
    momentum, epsilon = np.int64(c.momentum).view(np.float64), np.int64(c.epsilon).view(np.float64)
    values = s.size * c.rows * c.columns
    total = at(s.work, c.statistics + 2 * c.channels)
    square = at(total, LANES)
    for m in range(c.channels):
        mean, variance = 0.0, 0.0
        for turn in range(2):  # first the mean, then the variance around it
            part = 0.0
            for b in range(b0, b1):
                for lane in range(LANES):
                    total[lane] = f32(0)
                    square[lane] = f32(0)
                for h in range(c.rows):
                    x = at(s.work, c.x + b * c.x_block + (m * c.rows + h) * c.x_row)
                    moments(x, c.columns, f32(mean), total, square)
                part += live_sum(s, square if turn else total, b)
            if turn:
                variance = part / values
            else:
                mean = part / values
        inverse = 1 / math.sqrt(variance + epsilon)
        s.work[c.statistics + m] = f32(mean)
        s.work[c.statistics + c.channels + m] = f32(inverse)
        unbiased = variance * values / max(1, values - 1)
        s.row[c.mean + m] = f32((1 - momentum) * s.row[c.mean + m] + momentum * mean)
        s.row[c.variance + m] = f32((1 - momentum) * s.row[c.variance + m] + momentum * unbiased)
        for b in range(b0, b1):
            apply(s, c, m, b, mean, inverse)


@jit
def apply(s: Any, c: Any, m: int, b: int, mean: float, inverse: float) -> None:
    """y = weight * (x - mean) * inverse + bias on channel m of block b."""
    factor = inverse * (s.row[c.weight + m] if c.weight >= 0 else f32(1))
    constant = (s.row[c.bias + m] if c.bias >= 0 else f32(0)) - mean * factor
    for h in range(c.rows):
        r = m * c.rows + h
        x = at(s.work, c.x + b * c.x_block + r * c.x_row)
        scale(x, at(s.work, c.y + b * c.y_block + r * c.y_row), c.columns, f32(factor), f32(constant))


@jit
def norm_fixed(s: Any, c: Any, b: int) -> None:
    """With the running mean and variance."""
    epsilon = np.int64(c.epsilon).view(np.float64)
    for m in range(c.channels):
        inverse = 1 / math.sqrt(f64(s.row[c.variance + m]) + epsilon)
        apply(s, c, m, b, f64(s.row[c.mean + m]), inverse)


@jit
def norm_back(s: Any, c: Any, b0: int, b1: int) -> None:
    """With n values per channel, z = (x - mean) * inverse and gradient d by y, the gradient by x is

    weight * inverse * (d - sum(d) / n - z * sum(d * z) / n); by bias sum(d), by weight sum(d * z).
    """
    values = s.size * c.rows * c.columns
    total = at(s.work, c.statistics + 2 * c.channels)
    product = at(total, LANES)
    for m in range(c.channels):
        mean, inverse = s.work[c.statistics + m], s.work[c.statistics + c.channels + m]
        for lane in range(LANES):
            total[lane] = f32(0)
            product[lane] = f32(0)
        for b in range(b0, b1):
            for h in range(c.rows):
                r = m * c.rows + h
                d, x = (
                    at(s.work, c.y + b * c.y_block + r * c.y_row),
                    at(s.work, c.x + b * c.x_block + r * c.x_row),
                )
                products(d, x, c.columns, mean, total, product)
        by_bias, by_weight = 0.0, 0.0
        for lane in range(LANES):
            by_bias += f64(total[lane])
            by_weight += f64(product[lane]) * inverse
        factor = f64(s.row[c.weight + m] if c.weight >= 0 else f32(1)) * inverse
        along = -factor * by_weight * inverse / values
        constant = -factor * by_bias / values - along * mean
        for b in range(b0, b1):
            live = min(LANES, s.size - b * LANES)
            for h in range(c.rows):
                r = m * c.rows + h
                d, x = (
                    at(s.work, c.y + b * c.y_block + r * c.y_row),
                    at(s.work, c.x + b * c.x_block + r * c.x_row),
                )
                mix(x, d, c.columns, f32(along), f32(factor), f32(constant))
                if live < LANES:  # lanes without a sample must not gain a gradient
                    for w in range(c.columns):
                        for lane in range(live, LANES):
                            d[w * LANES + lane] = f32(0)
        total[0] = f32(by_weight)
        product[0] = f32(by_bias)
        if c.weight >= 0:
            finish(s.update, c.weight + m, total, int64(1))
        if c.bias >= 0:
            finish(s.update, c.bias + m, product, int64(1))


@jit
def rescale(s: Any, c: Any, b: int) -> None:
    for m in range(c.channels):
        factor = np.int64(s.tables[c.numbers + 2 * m]).view(np.float64)
        constant = np.int64(s.tables[c.numbers + 2 * m + 1]).view(np.float64)
        for r in range(m * c.rows, (m + 1) * c.rows):
            x = at(s.work, c.x + b * c.x_block + r * c.x_row)
            y = at(s.work, c.y + b * c.y_block + r * c.y_row)
            scale(x, y, c.columns, f32(factor), f32(constant))
