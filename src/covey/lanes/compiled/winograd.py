"""Convolutions by Winograd's method on blocks of samples; see `transforms`."""

from typing import Any

from covey.lanes.compiled.convolutions import NO_FLOOR
from covey.lanes.compiled.emit import LANES
from covey.lanes.compiled.jit import jit
from covey.lanes.compiled.native import at, contract, f32, pool, transform, transpose
from covey.lanes.compiled.tiles import ROW
from covey.lanes.compiled.vector import ACCUMULATE, ZERO


@jit
def strip(s: Any, g: Any, b: int, row: int, part: int) -> None:
    """The transformed inputs of one part of a row of tiles: v[place in the tile][channel][tile]."""
    top, apart = row * g.step - g.pad, g.channels * g.tiles * LANES
    inside = top >= 0 and top + g.size <= g.x_rows
    for m in range(g.channels):
        x = at(s.work, g.x + b * g.x_block + m * g.x_m + top * g.x_row + part * g.tiles * g.step * LANES)
        x_row = g.x_row
        if not inside:  # rows above and below are zero
            padded = at(s.work, g.padded)
            for i in range(g.size):
                there = 0 <= top + i < g.x_rows
                for k in range(g.width):
                    padded[i * g.width + k] = x[i * g.x_row + k] if there else f32(0)
            x, x_row = padded, g.width
        v = at(s.work, g.v + m * g.tiles * LANES)
        transform(
            x, x_row, LANES, g.step * LANES, v, g.size * apart, apart, LANES, g.tiles, f32(0), f32(0), g.into
        )


@jit
def conv(s: Any, g: Any, c: Any, p: Any, b: int) -> None:
    """y = convolution of x, with bias, ReLU and 2 x 2 maximum where they follow."""
    floor = f32(0) if c.relu else NO_FLOOR
    across, half = g.tiles * g.step * LANES, g.step // 2
    for row in range(g.tile_rows):
        for part in range(g.parts):
            strip(s, g, b, row, part)
            for i in range(c.m_count):
                m, rows = s.tables[c.m_chunks + 2 * i], s.tables[c.m_chunks + 2 * i + 1]
                multiply(s, g, c, m, rows)
                for r in range(rows):
                    y = at(s.work, c.y + r * c.y_m)
                    if not c.pooled:
                        top = (m + r) * c.y_m + row * g.step * c.y_row + part * across
                        y = at(s.work, c.y + b * c.y_block + top)
                    bias = s.row[c.bias + m + r] if c.bias >= 0 else f32(0)
                    products = at(s.work, c.products + r * g.tiles * LANES)
                    apart = c.most * g.tiles * LANES
                    transform(
                        *(products, g.size * apart, apart, LANES),
                        *(y, c.y_row, LANES, g.step * LANES, g.tiles, bias, floor, c.out),
                    )
                    if c.pooled:
                        for q in range(half):
                            h = row * half + q
                            place = h * p.columns * LANES + part * across // 2
                            pool(
                                at(s.work, c.y + r * c.y_m + 2 * q * c.y_row),
                                c.y_row,
                                at(
                                    s.work,
                                    p.y + b * p.y_block + (m + r) * p.y_m + h * p.y_row + part * across // 2,
                                ),
                                at(s.marks, p.marks + b * p.marks_block + (m + r) * p.marks_m + place),
                                g.tiles * half,
                                f32(0) if p.relu else NO_FLOOR,
                            )


@jit
def multiply(s: Any, g: Any, c: Any, m: int, rows: int) -> None:
    """products[place][r][tile] = sum over channels of u[place][m + r][channel] * v[place][channel][tile]."""
    step = g.tiles * LANES
    for f in range(g.size * g.size):
        weight = at(s.work, c.u + (f * c.outputs + m) * g.channels)
        for j in range(c.w_count):
            start, columns = s.tables[c.w_chunks + 2 * j], s.tables[c.w_chunks + 2 * j + 1]
            contract(
                weight,
                g.channels,
                at(s.work, g.v + f * g.channels * step + start * LANES),
                LANES,
                at(s.tables, c.zeros),
                1,
                g.channels,
                1,
                step,
                at(s.work, c.products + f * c.most * step + start * LANES),
                step,
                LANES,
                weight,
                ZERO,
                NO_FLOOR,
                1,
                rows * ROW + columns,
            )


@jit
def gradient(s: Any, g: Any, c: Any, b: int) -> None:
    """sums[place][channel][output] += v * transformed delta, over tiles and samples: outputs are in the lanes here."""
    long = g.tiles * LANES
    for row in range(g.tile_rows):
        for part in range(g.parts):
            strip(s, g, b, row, part)
            turn(s, g, c, b, row, part)
            for f in range(g.size * g.size):
                for i in range(c.m_count):
                    m, rows = s.tables[c.m_chunks + 2 * i], s.tables[c.m_chunks + 2 * i + 1]
                    for j in range(c.w_count):
                        start, columns = s.tables[c.w_chunks + 2 * j], s.tables[c.w_chunks + 2 * j + 1]
                        v = at(s.work, g.v + (f * g.channels + m) * long)
                        contract(
                            v,
                            long,
                            at(s.work, c.d + f * long * c.wide + start * LANES),
                            LANES,
                            at(s.tables, c.zeros),
                            1,
                            long,
                            1,
                            c.wide,
                            at(s.work, c.sums + (f * g.channels + m) * c.wide + start * LANES),
                            c.wide,
                            LANES,
                            v,
                            ACCUMULATE,
                            NO_FLOOR,
                            1,
                            rows * ROW + columns,
                        )


@jit
def turn(s: Any, g: Any, c: Any, b: int, row: int, part: int) -> None:
    """d[place][tile][sample][output]: the delta of some tiles, turned so that outputs are in the lanes, transformed."""
    columns, long = g.tiles * g.step, LANES * c.wide
    delta = at(
        s.work,
        c.delta + b * c.delta_block + row * g.step * c.delta_row + part * columns * LANES,
    )
    for o in range(g.step):
        for w in range(columns):
            for k in range(c.wide // LANES):
                transpose(
                    at(delta, o * c.delta_row + w * LANES),
                    at(s.tables, c.outputs + k * LANES),
                    at(s.work, c.turned + (o * columns + w) * long + k * LANES),
                    at(s.tables, c.places),
                )
    apart = g.tiles * long
    for t in range(g.tiles):
        transform(
            *(at(s.work, c.turned + t * g.step * long), columns * long, long, LANES),
            *(at(s.work, c.d + t * long), g.size * apart, apart, LANES, c.wide, f32(0), f32(0), c.into),
        )


@jit
def weights(s: Any, c: Any) -> None:
    """u[place][output][input] = G w G', for the gradient by x of flipped kernels with inputs and outputs exchanged."""
    area = c.kernel * c.kernel
    apart, row = at(s.work, c.apart), at(s.row, c.weight)
    for m in range(c.outputs):
        for n in range(c.inputs):
            for k in range(area):
                if c.flipped:
                    apart[k * c.pairs + n * c.outputs + m] = row[(m * c.inputs + n) * area + area - 1 - k]
                else:
                    apart[k * c.pairs + m * c.inputs + n] = row[(m * c.inputs + n) * area + k]
    transform(
        *(apart, c.kernel * c.pairs, c.pairs, LANES),
        *(at(s.work, c.u), c.size * c.pairs, c.pairs, LANES, c.pairs // LANES, f32(0), f32(0), c.into),
    )


@jit
def add_up(s: Any, c: Any) -> None:
    """gradient[output][channel][tap] += G' sums G, and the sums are zero again."""
    area, count = c.kernel * c.kernel, c.channels * c.wide
    apart = at(s.work, c.apart)
    transform(
        *(at(s.work, c.sums), c.size * count, count, LANES),
        *(apart, c.kernel * count, count, LANES, count // LANES, f32(0), f32(0), c.back),
    )
    for m in range(c.outputs):
        for n in range(c.channels):
            for k in range(area):
                s.work[c.gradient + (m * c.channels + n) * area + k] += apart[k * count + n * c.wide + m]
    sums = at(s.work, c.sums)
    for i in range(c.size * c.size * count):
        sums[i] = f32(0)
