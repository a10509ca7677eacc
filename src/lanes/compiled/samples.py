"""Sample by sample: the lengths of gradients, each in its lane, and weights of samples."""

import math
from typing import Any

from lanes.compiled.emit import LANES
from lanes.compiled.jit import jit
from lanes.compiled.native import at, f32, moments, products


@jit
def clear(values: Any, count: int) -> None:
    for i in range(count):
        values[i] = f32(0)


@jit
def linear_squares(s: Any, c: Any, b: int) -> None:
    """A sample's gradient is the outer product of d and x, of squared length |d|^2 (|x|^2 + 1 for the bias)."""
    total, x_square = at(s.work, c.scratch), at(s.work, c.scratch + LANES)
    d_square, squares = at(s.work, c.scratch + 2 * LANES), at(s.work, c.squares + b * LANES)
    clear(total, 3 * LANES)
    moments(at(s.work, c.x + b * c.x_block), c.inputs, f32(0), total, x_square)
    moments(at(s.work, c.d + b * c.d_block), c.outputs, f32(0), total, d_square)
    for lane in range(LANES):
        squares[lane] += d_square[lane] * (x_square[lane] + f32(c.bias))


@jit
def conv_squares(s: Any, c: Any, b: int) -> None:
    """Tap by tap: the sum over all places of delta * x, in its lane, and then its square."""
    total, product = at(s.work, c.scratch), at(s.work, c.scratch + LANES)
    squares = at(s.work, c.squares + b * LANES)
    for m in range(c.outputs):
        delta = at(s.work, c.delta + b * c.delta_block + m * c.delta_m)
        if c.bias:
            clear(total, 2 * LANES)
            for h in range(c.rows):
                moments(at(delta, h * c.delta_row), c.columns, f32(0), total, product)
            for lane in range(LANES):
                squares[lane] += total[lane] * total[lane]
        for channel in range(c.channels):
            for kh in range(c.height):
                for kw in range(c.width):
                    clear(total, 2 * LANES)
                    for h in range(c.rows):
                        row = h * c.stride_down - c.pad + kh
                        if row < 0 or row >= c.x_rows:
                            continue
                        x = at(s.work, c.x + b * c.x_block + channel * c.x_m + row * c.x_row + kw * LANES)
                        d = at(delta, h * c.delta_row)
                        if c.stride_across == 1:
                            products(d, x, c.columns, f32(0), total, product)
                        else:
                            for w in range(c.columns):
                                for lane in range(LANES):
                                    place = w * LANES + lane
                                    product[lane] += d[place] * x[w * c.stride_across * LANES + lane]
                    for lane in range(LANES):
                        squares[lane] += product[lane] * product[lane]


@jit
def lengths(s: Any, c: Any, b: int) -> None:
    squares = at(s.work, c.squares + b * LANES)
    for lane in range(min(LANES, s.size - b * LANES)):
        s.out[s.batch[b * LANES + lane]] = f32(math.sqrt(squares[lane]) * s.size)


@jit
def weigh(s: Any, c: Any, b: int) -> None:
    d = at(s.work, c.d + b * c.d_block)
    for lane in range(min(LANES, s.size - b * LANES)):
        weight = s.out[s.batch[b * LANES + lane]]
        for i in range(c.features):
            d[i * LANES + lane] *= weight
