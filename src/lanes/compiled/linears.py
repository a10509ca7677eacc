"""Linear layers, on all blocks of a batch at once."""

from typing import Any

import numpy as np

from lanes.compiled.emit import LANES
from lanes.compiled.jit import jit
from lanes.compiled.native import at, contract, f32, transpose
from lanes.compiled.tiles import ROW
from lanes.compiled.update import finish
from lanes.compiled.vector import ACCUMULATE, BIAS, ZERO

NO_FLOOR = np.float32(-np.inf)


@jit
def linear(s: Any, c: Any, b0: int, b1: int) -> None:
    taps = at(s.tables, c.zeros)
    for k in range(0, c.inputs, c.k_block):
        length = min(c.k_block, c.inputs - k)
        start = ACCUMULATE if k > 0 or c.accumulate else (BIAS if c.bias >= 0 else ZERO)
        floor = f32(0) if c.relu and k + length == c.inputs else NO_FLOOR
        for i in range(c.m_count):
            m, rows = s.tables[c.m_chunks + 2 * i], s.tables[c.m_chunks + 2 * i + 1]
            for b in range(b0, b1, c.columns):
                columns = min(c.columns, b1 - b)
                contract(
                    at(s.row, c.weight + m * c.weight_m + k * c.weight_k),
                    c.weight_m,
                    at(s.work, c.x + b * c.x_block + k * LANES),
                    c.x_block,
                    taps,
                    1,
                    length,
                    c.weight_k,
                    LANES,
                    at(s.work, c.y + b * c.y_block + m * LANES),
                    LANES,
                    c.y_block,
                    at(s.row, max(0, c.bias) + m),
                    start,
                    floor,
                    1,
                    rows * ROW + columns,
                )


@jit
def linear_grad(s: Any, c: Any, b0: int, b1: int) -> None:
    same, turned = at(s.tables, c.places), at(s.tables, c.places + LANES)
    for b in range(b0, b1):
        for i in range(0, c.inputs, LANES):
            source = at(s.work, c.x + b * c.x_block + i * LANES)
            transpose(source, same, at(s.work, c.turned + b * LANES * c.turned_row + i), turned)
    whole, rest = s.size // LANES, s.size % LANES
    vectors = (c.inputs + LANES - 1) // LANES
    gradient = at(s.work, c.gradient)
    for n in range(0, vectors, c.columns * c.tiles):  # these inputs of all samples stay in the cache
        here = min(c.columns * c.tiles, vectors - n)
        for i in range(c.m_count):
            m, rows = s.tables[c.m_chunks + 2 * i], s.tables[c.m_chunks + 2 * i + 1]
            done = 0
            while done < here:
                columns = min(c.columns, here - done)
                tiles = (here - done) // columns
                x = at(s.work, c.turned + (n + done) * LANES)
                y = at(gradient, done * LANES)
                y_m = c.columns * c.tiles * LANES
                shape = rows * ROW + columns
                d = at(s.work, c.d + m * LANES)
                blocks = at(s.tables, c.blocks)
                contract(
                    d,
                    LANES,
                    x,
                    LANES,
                    blocks,
                    whole,
                    LANES,
                    1,
                    c.turned_row,
                    y,
                    y_m,
                    LANES,
                    s.row,
                    ZERO,
                    NO_FLOOR,
                    tiles,
                    shape,
                )
                if rest:
                    contract(
                        d,
                        LANES,
                        x,
                        LANES,
                        at(blocks, 2 * whole),
                        1,
                        rest,
                        1,
                        c.turned_row,
                        y,
                        y_m,
                        LANES,
                        s.row,
                        ACCUMULATE,
                        NO_FLOOR,
                        tiles,
                        shape,
                    )
                done += columns * tiles
            first = n * LANES
            length = min(here * LANES, c.inputs - first)
            for r in range(rows):
                finish(
                    s.update,
                    c.weight + (m + r) * c.inputs + first,
                    at(gradient, r * c.columns * c.tiles * LANES),
                    length,
                )
    if c.bias >= 0:
        for j in range(c.outputs):
            t = f32(0)
            for b in range(b0, b1):
                d = at(s.work, c.d + b * c.d_block + j * LANES)
                for lane in range(LANES):
                    t += d[lane]
            gradient[j] = t
        finish(s.update, c.bias, gradient, c.outputs)
