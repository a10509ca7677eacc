"""Convolutions by Winograd's method on blocks of samples; see `transforms`."""

from typing import Any

from lanes.compiled.convolutions import NO_FLOOR
from lanes.compiled.emit import LANES
from lanes.compiled.jit import jit
from lanes.compiled.native import at, f32, multiply, pool, transform, transpose
from lanes.compiled.tiles import ROW


@jit
def strip(s: Any, g: Any, b: int, first: int, tiles: int) -> None:
    """The transformed inputs of some tiles, counted from block b on: v[place in the tile][channel][tile]."""
    apart, next_v, width = g.v_place, g.tiles * LANES, g.size * LANES
    for i in range(tiles):
        block, tile = b + (first + i) // g.per, (first + i) % g.per
        row = tile // g.across
        top, left = row * g.step - g.pad, (tile - row * g.across) * g.step
        x = at(s.work, g.x + block * g.x_block + top * g.x_row + left * LANES)
        v = at(s.work, g.v + i * LANES)
        if top >= 0 and top + g.size <= g.x_rows and left + g.size <= g.x_wide:
            transform(
                *(x, g.x_row, LANES, g.x_m, v, g.made * apart, apart, next_v),
                *(g.channels, s.work, f32(0), g.into),
            )
            continue
        padded = at(s.work, g.padded)
        for k in range(g.size * width):
            padded[k] = f32(0)
        low, high = max(0, -top), min(g.size, g.x_rows - top)
        there = min(g.size, g.x_wide - left) * LANES
        for m in range(g.channels):
            for k in range(low, high):
                source, target = at(x, m * g.x_m + k * g.x_row), at(padded, k * width)
                for lane in range(there):
                    target[lane] = source[lane]
            transform(
                *(padded, width, LANES, width, at(v, m * next_v), g.made * apart, apart, next_v),
                *(1, s.work, f32(0), g.into),
            )


@jit
def conv(s: Any, g: Any, c: Any, p: Any, b: int) -> None:
    """y = convolution of x, with bias, ReLU and 2 x 2 maximum where they follow."""
    for k in range(g.strip_count):
        first, tiles = s.tables[g.strips + 2 * k], s.tables[g.strips + 2 * k + 1]
        strip(s, g, b, first, tiles)
        for j in range(c.part_count):
            m, channels = s.tables[c.parts + 2 * j], s.tables[c.parts + 2 * j + 1]
            products(s, g, c, m, channels, 0, tiles)
            for i in range(tiles):
                output(s, g, c, p, b, first + i, i, m, channels)


@jit
def products(s: Any, g: Any, c: Any, m: int, channels: int, first: int, tiles: int) -> None:
    """products[place][r][tile] = sum over channels of u[place][m + r][channel] * v[place][channel][tile]."""
    next_tile = g.tiles * LANES
    whole = channels - channels % c.rows
    for rest in range(2):  # whole register tiles, then what is left over
        start, rows, count = (whole, channels - whole, 1) if rest else (0, c.rows, whole // c.rows)
        if rows * count == 0:
            continue
        multiply(
            *(at(s.work, c.u + (m + start) * g.channels), g.channels, c.u_place),
            *(at(s.work, g.v + first * LANES), next_tile, g.v_place),
            *(at(s.work, c.products + start * next_tile + first * LANES), next_tile, c.products_place),
            *(g.channels, count, g.size * g.size, 0, rows * ROW + tiles),
        )


@jit
def output(s: Any, g: Any, c: Any, p: Any, b: int, tile: int, i: int, m: int, channels: int) -> None:
    """Tile number `tile`, the i-th of its strip, of some channels: transformed back, and to where it belongs."""
    b, tile = b + tile // g.per, tile % g.per
    row = tile // g.across
    top, left = row * g.step, (tile - row * g.across) * g.step
    rows, columns = min(g.step, c.y_rows - top), min(g.step, c.y_columns - left)
    y = at(s.work, c.y + b * c.y_block + m * c.y_m + top * c.y_row + left * LANES)
    straight = not c.pooled and not c.accumulate and rows == g.step and columns == g.step
    width = g.step * LANES
    target, target_row, target_m = at(s.work, c.tile), width, g.step * width
    if straight:
        target, target_row, target_m = y, c.y_row, c.y_m
    apart = c.products_place
    bias = at(s.row, c.bias + m) if c.bias >= 0 else at(s.work, c.zeros)
    floor = f32(0) if c.relu else NO_FLOOR
    transform(
        *(at(s.work, c.products + i * LANES), g.size * apart, apart, g.tiles * LANES),
        *(target, target_row, LANES, target_m, channels, bias, floor, c.out),
    )
    if straight:
        return
    for r in range(channels):
        source = at(s.work, c.tile + r * g.step * width)
        if c.pooled:
            for q in range(rows // 2):
                h, w = top // 2 + q, left // 2 * LANES
                pool(
                    at(source, 2 * q * width),
                    width,
                    at(s.work, p.y + b * p.y_block + (m + r) * p.y_m + h * p.y_row + w),
                    at(
                        s.marks,
                        p.marks + b * p.marks_block + (m + r) * p.marks_m + h * p.columns * LANES + w,
                    ),
                    columns // 2,
                    f32(0) if p.relu else NO_FLOOR,
                )
            continue
        for q in range(rows):
            line, place = at(source, q * width), at(y, r * c.y_m + q * c.y_row)
            if c.accumulate:
                for lane in range(columns * LANES):
                    place[lane] += line[lane]
            else:
                for lane in range(columns * LANES):
                    place[lane] = line[lane]


@jit
def gradient(s: Any, g: Any, c: Any, b: int) -> None:
    """sums[place][channel][output] += v * transformed delta, over tiles and samples: outputs are in the lanes here."""
    long, whole = g.tiles * LANES, g.channels - g.channels % c.rows
    for k in range(g.strip_count):
        first, tiles = s.tables[g.strips + 2 * k], s.tables[g.strips + 2 * k + 1]
        strip(s, g, b, first, tiles)
        turn(s, g, c, b, first, tiles)
        for j in range(c.w_count):
            start, columns = s.tables[c.w_chunks + 2 * j], s.tables[c.w_chunks + 2 * j + 1]
            for rest in range(2):
                m, rows, count = (whole, g.channels - whole, 1) if rest else (0, c.rows, whole // c.rows)
                if rows * count == 0:
                    continue
                multiply(
                    *(at(s.work, g.v + m * long), long, g.v_place),
                    *(at(s.work, c.d + start * LANES), c.wide, c.d_place),
                    *(at(s.work, c.sums + m * c.wide + start * LANES), c.wide, c.sums_place),
                    *(tiles * LANES, count, g.size * g.size, 1, rows * ROW + columns),
                )


@jit
def turn(s: Any, g: Any, c: Any, b: int, first: int, tiles: int) -> None:
    """d[place][tile][sample][output]: the delta of some tiles, turned so that outputs are in the lanes, transformed."""
    long = LANES * c.wide
    for i in range(tiles):
        row = (first + i) // g.across
        top, left = row * g.step, (first + i - row * g.across) * g.step
        for o in range(g.step):
            for w in range(g.step):
                turned = at(s.work, c.turned + (o * g.step + w) * c.turned_place)
                if top + o >= c.delta_rows or left + w >= c.delta_columns:
                    for k in range(long):
                        turned[k] = f32(0)
                    continue
                place = c.delta + b * c.delta_block + (top + o) * c.delta_row + (left + w) * LANES
                for k in range(c.wide // LANES):
                    transpose(
                        at(s.work, place),
                        at(s.tables, c.outputs + k * LANES),
                        at(turned, k * LANES),
                        at(s.tables, c.places),
                    )
        transform(
            *(at(s.work, c.turned), g.step * c.turned_place, c.turned_place, LANES),
            *(at(s.work, c.d + i * long), g.size * c.d_place, c.d_place, LANES),
            *(c.wide, s.work, f32(0), c.into),
        )


@jit
def weights(s: Any, c: Any, first: int, count: int) -> None:
    """u[place][output][input] = G w G', for the gradient by x of flipped kernels with inputs and outputs exchanged.

    Of `count` outputs (flipped: inputs) from the first on.
    """
    area, place = c.kernel * c.kernel, c.u_place
    apart, row = at(s.work, c.apart), at(s.row, c.weight)
    if c.flipped:
        for m in range(c.outputs):
            source = at(row, (m * c.inputs + first) * area)
            for r in range(count):
                for k in range(area):
                    apart[k * place + r * c.outputs + m] = source[r * area + area - 1 - k]
    else:
        for r in range(count):
            source = at(row, (first + r) * c.inputs * area)
            for k in range(area):
                target = at(apart, k * place + r * c.inputs)
                for n in range(c.inputs):
                    target[n] = source[n * area + k]
    transform(
        *(apart, c.kernel * place, place, LANES),
        *(at(s.work, c.u), c.size * place, place, LANES, place // LANES, s.work, f32(0), c.into),
    )


@jit
def add_up(s: Any, c: Any) -> None:
    """gradient[output][channel][tap] += G' sums G, and the sums are zero again."""
    area, place = c.kernel * c.kernel, c.sums_place
    apart, sums = at(s.work, c.apart), at(s.work, c.sums)
    transform(
        *(sums, c.size * place, place, LANES),
        *(apart, c.kernel * place, place, LANES, place // LANES, s.work, f32(0), c.back),
    )
    for m in range(c.outputs):
        for n in range(c.channels):
            for k in range(area):
                s.work[c.gradient + (m * c.channels + n) * area + k] += apart[k * place + n * c.wide + m]
    for i in range(c.size * c.size * place):
        sums[i] = f32(0)
