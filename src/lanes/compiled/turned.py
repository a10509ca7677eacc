"""The gradient of a convolution's weights with its channels in the lanes, so that no sum over lanes is left."""

from typing import Any

from lanes.compiled.emit import LANES
from lanes.compiled.jit import jit
from lanes.compiled.linears import NO_FLOOR
from lanes.compiled.native import at, contract, f32, transpose
from lanes.compiled.tiles import ROW
from lanes.compiled.update import finish
from lanes.compiled.vector import ACCUMULATE, ZERO


@jit
def gradient(s: Any, c: Any, b0: int, b1: int) -> None:
    """Some outputs after the others: what is known of their weights is used at once, while it is in the cache."""
    turn(s, c, b0, b1)
    for i in range(c.m_count):
        m, rows = s.tables[c.m_chunks + 2 * i], s.tables[c.m_chunks + 2 * i + 1]
        for j in range(c.w_count):
            start, columns = s.tables[c.w_chunks + 2 * j], s.tables[c.w_chunks + 2 * j + 1]
            for t in range(c.group_count):
                first, count = s.tables[c.groups + 2 * t], s.tables[c.groups + 2 * t + 1]
                if count == 0:
                    continue
                for b in range(b0, b1):
                    delta = at(s.work, c.delta + b * c.delta_block + m * c.delta_m)
                    contract(
                        delta,
                        c.delta_m,
                        at(s.work, c.turned + b * c.turned_block + start * LANES),
                        LANES,
                        at(s.tables, c.taps + 2 * first),
                        count,
                        LANES,
                        1,
                        c.turned_row,
                        at(s.work, c.sums + t * c.sums_tap + start * LANES),
                        c.wide,
                        LANES,
                        delta,
                        ACCUMULATE if b > b0 else ZERO,
                        NO_FLOOR,
                        1,
                        rows * ROW + columns,
                    )
        update(s, c, m, rows)


@jit
def turn(s: Any, c: Any, b0: int, b1: int) -> None:
    """turned[block][row][column][lane][channel] = x."""
    for b in range(b0, b1):
        for row in range(c.x_rows):
            for column in range(c.x_columns):
                x = at(s.work, c.x + b * c.x_block + row * c.x_row + column * LANES)
                number = row * c.x_columns + column
                place = at(s.work, c.turned + b * c.turned_block + number * LANES * c.turned_row)
                for k in range(0, c.wide, LANES):
                    transpose(x, at(s.tables, c.channels + k), at(place, k), at(s.tables, c.places))


@jit
def update(s: Any, c: Any, m: int, rows: int) -> None:
    """The weights of some outputs get their gradient; taps that never meet the image have none."""
    for t in range(c.group_count):
        if s.tables[c.groups + 2 * t + 1] == 0:
            nothing = at(s.work, c.sums + t * c.sums_tap)
            for k in range(rows * c.wide):
                nothing[k] = f32(0)
    sums, gradient = at(s.work, c.sums), at(s.work, c.gradient)
    as_weights(sums, c.sums_tap, c.wide, gradient, rows, c.inputs, c.group_count)
    size = c.inputs * c.group_count
    finish(s.update, c.weight + m * size, gradient, rows * size)


@jit
def as_weights(sums: Any, apart: int, wide: int, target: Any, rows: int, inputs: int, taps: int) -> None:
    """Sums [tap][output][channel] as weights lie, [output][channel][tap]."""
    for r in range(rows):
        for t in range(taps):
            source, to = at(sums, t * apart + r * wide), at(target, r * inputs * taps + t)
            for k in range(inputs):
                to[k * taps] = source[k]
