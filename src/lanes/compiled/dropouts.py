"""Dropout, from the random numbers of a client's own seed."""

from typing import Any

from lanes.compiled.emit import LANES
from lanes.compiled.jit import jit
from lanes.compiled.native import at, f32, u32
from lanes.compiled.random import dropout_key, scramble


@jit
def dropout(s: Any, c: Any, b: int) -> None:
    key = dropout_key(s.seed, s.step, c.layer)
    scale = f32(4294967296.0 / c.keep)
    keep = u32(min(c.keep, 0xFFFFFFFF))
    first = b * LANES
    for r in range(c.rows):
        for w in range(c.columns):
            group = r // c.shared if c.shared else r * c.columns + w
            start = u32(scramble(u32(key + u32(group))) + u32(first))
            x = at(s.work, c.x + b * c.x_block + r * c.x_row + w * LANES)
            y = at(s.work, c.y + b * c.y_block + r * c.y_row + w * LANES)
            for lane in range(LANES):
                y[lane] = x[lane] * scale if scramble(u32(start + u32(lane))) < keep else f32(0)
