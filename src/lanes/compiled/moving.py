"""Moving numbers: samples into lanes and back, copies, and functions of single values."""

from collections.abc import Callable
from typing import Any

from lanes.compiled.emit import LANES
from lanes.compiled.jit import inline, jit
from lanes.compiled.native import at, f32, sigmoid, tanh, transpose


@jit
def places_of(s: Any, b: int, features: int) -> None:
    """Where the samples of block b begin in an array of `features` values per sample, into the scratch."""
    for lane in range(LANES):
        # A lane without a sample repeats the first, or is zero: its numbers are finite, its gradient is set to zero.
        q = b * LANES + lane
        s.scratch[lane] = s.batch[q if q < s.size else 0] * features


@jit
def gather(s: Any, c: Any, b: int) -> None:
    places_of(s, b, c.features)
    y = at(s.work, c.y + b * c.y_block)
    whole = c.features - c.features % LANES
    for i in range(0, whole, LANES):
        transpose(at(s.x, i), s.scratch, y, at(s.tables, c.places + i))
    for i in range(whole, c.features):
        target = at(y, s.tables[c.places + i])
        for lane in range(LANES):
            target[lane] = s.x[s.scratch[lane] + i]


@jit
def scatter(s: Any, c: Any, b: int) -> None:
    places_of(s, b, c.features)
    x = at(s.work, c.x + b * c.x_block)
    live = min(LANES, s.size - b * LANES)
    whole = c.features - c.features % LANES if live == LANES else 0
    for i in range(0, whole, LANES):
        transpose(at(x, i * LANES), at(s.tables, c.places), at(s.out, i), s.scratch)
    for i in range(whole, c.features):
        for lane in range(live):
            s.out[s.scratch[lane] + i] = x[i * LANES + lane]


@jit
def zero(s: Any, c: Any, b: int) -> None:
    y = at(s.work, c.y + b * c.y_block)
    for i in range(c.size):
        y[i] = f32(0)


def elementwise(function: Callable[[Any, Any], Any]) -> Callable[..., None]:
    """The operation y = function(x, y) on stretches of floats."""
    apply = inline(function)

    @jit
    def operation(s: Any, c: Any, b: int) -> None:
        for r in range(c.rows):
            x = at(s.work, c.x + b * c.x_block + r * c.x_row)
            y = at(s.work, c.y + b * c.y_block + r * c.y_row)
            for i in range(c.size):
                y[i] = apply(x[i], y[i])

    return operation


# Backward, x is what the activation returned and y the gradient, which changes in place.
copy = elementwise(lambda x, _: x)
add = elementwise(lambda x, y: x + y)
relu = elementwise(lambda x, _: f32(0) if x < f32(0) else x)
relu_back = elementwise(lambda x, y: y if x > f32(0) else f32(0))
tanh_back = elementwise(lambda x, y: y * (f32(1) - x * x))
sigmoid_back = elementwise(lambda x, y: y * (x * (f32(1) - x)))


@jit
def apply_tanh(s: Any, c: Any, b: int) -> None:
    for r in range(c.rows):
        x = at(s.work, c.x + b * c.x_block + r * c.x_row)
        tanh(x, at(s.work, c.y + b * c.y_block + r * c.y_row), c.size // LANES)


@jit
def apply_sigmoid(s: Any, c: Any, b: int) -> None:
    for r in range(c.rows):
        x = at(s.work, c.x + b * c.x_block + r * c.x_row)
        sigmoid(x, at(s.work, c.y + b * c.y_block + r * c.y_row), c.size // LANES)
