"""The gradient of a convolution's weights with its channels in the lanes, so that no sum over lanes is left."""

from typing import Any

from covey.lanes.compiled.emit import LANES
from covey.lanes.compiled.jit import jit
from covey.lanes.compiled.linears import NO_FLOOR
from covey.lanes.compiled.native import at, contract, f32, transpose
from covey.lanes.compiled.tiles import ROW
from covey.lanes.compiled.vector import ACCUMULATE


@jit
def gradient(s: Any, c: Any, b: int) -> None:
    for row in range(c.x_rows):
        for column in range(c.x_columns):
            x = at(s.work, c.x + b * c.x_block + row * c.x_row + column * LANES)
            place = at(s.work, c.turned + (row * c.x_columns + column) * LANES * c.turned_row)
            for k in range(0, c.wide, LANES):
                transpose(x, at(s.tables, c.channels + k), at(place, k), at(s.tables, c.places))
    for t in range(c.group_count):
        first, count = s.tables[c.groups + 2 * t], s.tables[c.groups + 2 * t + 1]
        if count == 0:
            continue
        for i in range(c.m_count):
            m, rows = s.tables[c.m_chunks + 2 * i], s.tables[c.m_chunks + 2 * i + 1]
            delta = at(s.work, c.delta + b * c.delta_block + m * c.delta_m)
            for j in range(c.w_count):
                start, columns = s.tables[c.w_chunks + 2 * j], s.tables[c.w_chunks + 2 * j + 1]
                contract(
                    delta,
                    c.delta_m,
                    at(s.work, c.turned + start * LANES),
                    LANES,
                    at(s.tables, c.taps + 2 * first),
                    count,
                    LANES,
                    1,
                    c.turned_row,
                    at(s.work, c.sums + (t * c.outputs + m) * c.wide + start * LANES),
                    c.wide,
                    LANES,
                    delta,
                    ACCUMULATE,
                    NO_FLOOR,
                    1,
                    rows * ROW + columns,
                )


@jit
def add_up(s: Any, c: Any) -> None:
    gradient, sums = at(s.work, c.gradient), at(s.work, c.sums)
    for t in range(c.group_count):
        if s.tables[c.groups + 2 * t + 1] == 0:
            continue
        for m in range(c.outputs):
            target = at(gradient, m * c.channels * c.group_count + t)
            source = at(sums, (t * c.outputs + m) * c.wide)
            for k in range(c.channels):
                target[k * c.group_count] += source[k]
            for k in range(c.wide):
                source[k] = f32(0)
