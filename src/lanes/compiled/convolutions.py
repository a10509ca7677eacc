"""Convolutions on blocks of samples."""

from typing import Any

import numpy as np

from lanes.compiled.emit import LANES
from lanes.compiled.instructions import Tiling
from lanes.compiled.isa import host
from lanes.compiled.jit import jit
from lanes.compiled.native import at, contract, correlate, f32, pool, unpool
from lanes.compiled.tiles import NARROW, ROW, parts
from lanes.compiled.vector import ACCUMULATE, BIAS, ZERO

NO_FLOOR = np.float32(-np.inf)
PER_TILING = len(Tiling._fields)


HALVES = 2 in parts(host())


@jit
def narrow(s: Any, b: int) -> int:
    """1 if at most half of the lanes of block b hold a sample: two places then share a vector, and no bits change."""
    return 1 if HALVES and s.size - b * LANES <= LANES // 2 else 0


@jit
def conv_row(s: Any, c: Any, b: int, i: int, h: int, y: Any, y_m: int, floor: Any) -> None:
    """Row h of the output channels of chunk i."""
    part = narrow(s, b)
    tiling = at(s.tables, c.tilings + PER_TILING * part)
    m, rows = s.tables[tiling[0] + 2 * i], s.tables[tiling[0] + 2 * i + 1]
    top = h * c.stride - c.pad
    low, high = max(0, -top), min(c.heights, c.x_rows - top)
    count = max(0, high - low) * c.per
    taps = at(s.tables, c.taps + 2 * low * c.per)
    x = at(s.work, c.x + b * c.x_block + top * c.x_row)
    weight = at(s.row, c.weight + m * c.weight_m)
    start = ACCUMULATE if c.accumulate else (BIAS if c.bias >= 0 else ZERO)
    bias = at(s.row, max(0, c.bias) + m)
    shape = part * NARROW + rows * ROW
    for j in range(tiling[3]):
        chunk = at(s.tables, tiling[2] + 5 * j)
        w, columns, tiles, skip, run = chunk[0], chunk[1], chunk[2], chunk[3], chunk[4]
        contract(
            at(weight, skip * c.w_run),
            c.weight_m,
            at(x, w * c.x_step + skip * c.x_run),
            c.x_step,
            taps,
            count,
            run,
            c.w_run,
            c.x_run,
            at(y, w * c.y_step),
            y_m,
            c.y_step,
            bias,
            start,
            floor,
            tiles,
            shape + columns,
        )


@jit
def conv(s: Any, c: Any, b: int) -> None:
    floor = f32(0) if c.relu else NO_FLOOR
    tiling = at(s.tables, c.tilings + PER_TILING * narrow(s, b))
    for i in range(tiling[1]):
        m = s.tables[tiling[0] + 2 * i]
        for h in range(c.y_rows):
            y = at(s.work, c.y + b * c.y_block + m * c.y_m + h * c.y_row)
            conv_row(s, c, b, i, h, y, c.y_m, floor)


@jit
def conv_pool(s: Any, c: Any, p: Any, b: int) -> None:
    floor = f32(0) if p.relu else NO_FLOOR
    tiling = at(s.tables, c.tilings + PER_TILING * narrow(s, b))
    for i in range(tiling[1]):
        m, rows = s.tables[tiling[0] + 2 * i], s.tables[tiling[0] + 2 * i + 1]
        for h in range(p.rows):
            for second in range(2):
                y = at(s.work, c.y + second * c.y_row)
                conv_row(s, c, b, i, 2 * h + second, y, c.y_m, NO_FLOOR)
            for r in range(rows):
                pool(
                    at(s.work, c.y + r * c.y_m),
                    c.y_row,
                    at(s.work, p.y + b * p.y_block + (m + r) * p.y_m + h * p.y_row),
                    at(s.marks, p.marks + b * p.marks_block + (m + r) * p.marks_m + h * p.columns * LANES),
                    p.columns,
                    floor,
                )


@jit
def max_pool(s: Any, c: Any, p: Any, b: int) -> None:
    for m in range(p.channels):
        for h in range(p.rows):
            pool(
                at(s.work, c.x + b * c.x_block + m * c.x_m + 2 * h * c.x_row),
                c.x_row,
                at(s.work, p.y + b * p.y_block + m * p.y_m + h * p.y_row),
                at(s.marks, p.marks + b * p.marks_block + m * p.marks_m + h * p.columns * LANES),
                p.columns,
                f32(0) if p.relu else NO_FLOOR,
            )


@jit
def delta(s: Any, c: Any, b: int) -> None:
    n = c.columns * LANES
    total = at(s.work, c.total)
    for m in range(c.channels):
        for lane in range(LANES):
            total[lane] = f32(0)
        for h in range(c.rows):
            d = at(s.work, c.d + b * c.d_block + (m * c.rows + h) * n)
            if c.pooled:
                won = at(s.marks, c.marks + b * c.marks_block + (m * c.rows + h) * n)
                out = at(s.work, c.delta + b * c.delta_block + m * c.delta_m + 2 * h * c.delta_row)
                unpool(d, won, out, c.delta_row, c.columns, total)
            else:
                out = at(s.work, c.delta + b * c.delta_block + m * c.delta_m + h * c.delta_row)
                if c.relu:
                    y = at(s.work, c.y + b * c.y_block + m * c.y_m + h * c.y_row)
                    for i in range(n):
                        out[i] = d[i] if y[i] > f32(0) else f32(0)
                else:
                    for i in range(n):
                        out[i] = d[i]
                t = f32(0)
                for i in range(n):
                    t += out[i]
                total[0] += t
        if c.bias_gradient >= 0:
            t = f32(0)
            for lane in range(LANES):
                t += total[lane]
            s.work[c.bias_gradient + m] += t


@jit
def conv_grad(s: Any, c: Any, b: int) -> None:
    part = narrow(s, b)
    tiling = at(s.tables, c.tilings + PER_TILING * part)
    for kh in range(c.heights):
        low = max(0, -((kh - c.pad) // c.stride)) if kh < c.pad else 0
        high = min(c.rows, (c.x_rows - 1 + c.pad - kh) // c.stride + 1)
        x = at(s.work, c.x + b * c.x_block + (low * c.stride - c.pad + kh) * c.x_row)
        for i in range(tiling[1]):
            m, columns = s.tables[tiling[0] + 2 * i], s.tables[tiling[0] + 2 * i + 1]
            delta = at(s.work, c.delta + b * c.delta_block + m * c.delta_m + low * c.delta_row)
            gradient = at(s.work, c.gradient + m * c.gradient_m)
            for j in range(tiling[3]):
                t, rows = s.tables[tiling[2] + 2 * j], s.tables[tiling[2] + 2 * j + 1]
                correlate(
                    delta,
                    c.delta_m,
                    c.delta_row,
                    x,
                    c.x_row * c.stride,
                    c.x_step,
                    at(s.tables, c.taps + 2 * (kh * c.per + t)),
                    high - low,
                    c.columns,
                    gradient,
                    c.gradient_m,
                    part * NARROW + rows * ROW + columns,
                )
