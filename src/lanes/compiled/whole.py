"""Winograd convolutions with many channels on all blocks of a batch at once.

Their transformed weights are larger than a cache. So weights are transformed part after part and used while they are
there, for all samples; and the gradient by some outputs' weights is complete at a time, and used at once.
"""

from typing import Any

from lanes.compiled.emit import LANES
from lanes.compiled.jit import jit
from lanes.compiled.native import at, f32, multiply, transform, transpose
from lanes.compiled.tiles import ROW
from lanes.compiled.turned import as_weights
from lanes.compiled.update import finish
from lanes.compiled.winograd import output, products, strip, weights


@jit
def conv(s: Any, g: Any, c: Any, p: Any, u: Any, b0: int, b1: int) -> None:
    """y = convolution of x, with bias, ReLU and 2 x 2 maximum where they follow."""
    tiles = (b1 - b0) * g.per
    pieces = (tiles + c.columns - 1) // c.columns
    strip(s, g, b0, 0, tiles)
    for j in range(c.part_count):
        m, channels = s.tables[c.parts + 2 * j], s.tables[c.parts + 2 * j + 1]
        weights(s, u, m, channels)
        for i in range(pieces):
            first = tiles * i // pieces
            products(s, g, c, 0, channels, first, tiles * (i + 1) // pieces - first)
        for i in range(tiles):
            output(s, g, c, p, b0, i, i, m, channels)


@jit
def gradient(s: Any, g: Any, c: Any, b0: int, b1: int) -> None:
    """sums[place][output][channel] of some outputs = transformed delta * v, then their weights are updated."""
    tiles = (b1 - b0) * g.per
    strip(s, g, b0, 0, tiles)
    for i in range(tiles):
        turn(s, g, c, b0, i)
    long = g.tiles * LANES
    for j in range(c.part_count):
        m, outputs = s.tables[c.parts + 2 * j], s.tables[c.parts + 2 * j + 1]
        whole = outputs - outputs % c.rows
        for k in range(c.w_count):
            start, columns = s.tables[c.w_chunks + 2 * k], s.tables[c.w_chunks + 2 * k + 1]
            for rest in range(2):
                r, rows, count = (whole, outputs - whole, 1) if rest else (0, c.rows, whole // c.rows)
                if rows * count == 0:
                    continue
                multiply(
                    *(at(s.work, g.v + (m + r) * long), long, g.v_place),
                    *(at(s.work, c.v + start * LANES), c.wide, c.v_place),
                    *(at(s.work, c.sums + r * c.wide + start * LANES), c.wide, c.sums_place),
                    *(tiles * LANES, count, g.made * g.made, 0, rows * ROW + columns),
                )
        update(s, g, c, m, outputs)


@jit
def turn(s: Any, g: Any, c: Any, b: int, i: int) -> None:
    """v[place][tile i and sample][channel]: a tile of x, turned so that channels are in the lanes, transformed."""
    tile = i % g.per
    row = tile // g.across
    top, left = row * g.step - c.pad, (tile - row * g.across) * g.step
    x = c.x + (b + i // g.per) * c.x_block + top * c.x_row + left * LANES
    long = LANES * c.wide
    for o in range(g.made):
        for w in range(g.made):
            turned = at(s.work, c.turned + (o * g.made + w) * c.turned_place)
            if top + o < 0 or top + o >= c.x_rows or left + w >= c.x_wide:
                for k in range(long):
                    turned[k] = f32(0)
                continue
            source = at(s.work, x + o * c.x_row + w * LANES)
            for k in range(0, c.wide, LANES):
                transpose(source, at(s.tables, c.channels + k), at(turned, k), at(s.tables, c.places))
    transform(
        *(at(s.work, c.turned), g.made * c.turned_place, c.turned_place, LANES),
        *(at(s.work, c.v + i * long), g.made * c.v_place, c.v_place, LANES),
        *(c.wide, s.work, f32(0), c.into),
    )


@jit
def update(s: Any, g: Any, c: Any, m: int, outputs: int) -> None:
    """The sums of some outputs transformed back; their weights get this gradient."""
    transform(
        *(at(s.work, c.sums), g.made * c.sums_place, c.sums_place, LANES),
        *(at(s.work, c.apart), c.taps * c.apart_tap, c.apart_tap, LANES),
        *(outputs * c.wide // LANES, s.work, f32(0), c.back),
    )
    taps, gradient = c.taps * c.taps, at(s.work, c.gradient)
    as_weights(at(s.work, c.apart), c.apart_tap, c.wide, gradient, outputs, c.inputs, taps)
    finish(s.update, c.weight + m * c.inputs * taps, gradient, outputs * c.inputs * taps)
