"""Pooling over windows of any size and stride."""

from typing import Any

from lanes.compiled.emit import LANES
from lanes.compiled.jit import jit
from lanes.compiled.native import at, f32


@jit
def window_max(s: Any, c: Any, b: int) -> None:
    """The first of the largest values wins, as in PyTorch; `marks` keeps which."""
    for m in range(c.channels):
        x = at(s.work, c.x + b * c.x_block + m * c.x_m)
        for i in range(c.rows):
            y = at(s.work, c.y + b * c.y_block + m * c.y_m + i * c.y_row)
            won = at(s.marks, c.marks + ((b * c.channels + m) * c.rows + i) * c.columns * LANES)
            for j in range(c.columns):
                first = True
                for kh in range(c.height):
                    h = i * c.stride_down - c.pad_down + kh
                    for kw in range(c.width):
                        w = j * c.stride_across - c.pad_across + kw
                        if 0 <= h < c.x_rows and 0 <= w < c.x_columns:
                            value = at(x, h * c.x_row + w * LANES)
                            tap = kh * c.width + kw
                            for lane in range(LANES):
                                keep = not first and y[lane] >= value[lane]
                                y[lane] = y[lane] if keep else value[lane]
                                won[lane] = won[lane] if keep else tap
                            first = False
                y, won = at(y, LANES), at(won, LANES)


@jit
def clear(s: Any, c: Any, b: int, m: int) -> None:
    """Zero in channel m of the gradient by the input, which windows may overlap in or leave out."""
    for h in range(c.x_rows):
        x = at(s.work, c.x + b * c.x_block + m * c.x_m + h * c.x_row)
        for i in range(c.x_columns * LANES):
            x[i] = f32(0)


@jit
def window_max_back(s: Any, c: Any, b: int) -> None:
    for m in range(c.channels):
        if not c.accumulate:
            clear(s, c, b, m)
        x = at(s.work, c.x + b * c.x_block + m * c.x_m)
        for i in range(c.rows):
            y = at(s.work, c.y + b * c.y_block + m * c.y_m + i * c.y_row)
            won = at(s.marks, c.marks + ((b * c.channels + m) * c.rows + i) * c.columns * LANES)
            for j in range(c.columns):
                for kh in range(c.height):
                    h = i * c.stride_down - c.pad_down + kh
                    for kw in range(c.width):
                        w = j * c.stride_across - c.pad_across + kw
                        if 0 <= h < c.x_rows and 0 <= w < c.x_columns:
                            target = at(x, h * c.x_row + w * LANES)
                            tap = kh * c.width + kw
                            for lane in range(LANES):
                                target[lane] += y[lane] if won[lane] == tap else f32(0)
                y, won = at(y, LANES), at(won, LANES)


@jit
def window_mean(s: Any, c: Any, b: int) -> None:
    share = f32(1.0 / (c.height * c.width))
    for m in range(c.channels):
        for i in range(c.rows):
            for j in range(c.columns):
                y = at(s.work, c.y + b * c.y_block + m * c.y_m + i * c.y_row + j * LANES)
                for lane in range(LANES):
                    y[lane] = f32(0)
                for kh in range(c.height):
                    h, w = i * c.stride_down + kh, j * c.stride_across
                    x = at(s.work, c.x + b * c.x_block + m * c.x_m + h * c.x_row + w * LANES)
                    for kw in range(c.width):
                        for lane in range(LANES):
                            y[lane] += x[kw * LANES + lane]
                for lane in range(LANES):
                    y[lane] *= share


@jit
def window_mean_back(s: Any, c: Any, b: int) -> None:
    share = f32(1.0 / (c.height * c.width))
    for m in range(c.channels):
        if not c.accumulate:
            clear(s, c, b, m)
        for i in range(c.rows):
            for j in range(c.columns):
                y = at(s.work, c.y + b * c.y_block + m * c.y_m + i * c.y_row + j * LANES)
                for kh in range(c.height):
                    h, w = i * c.stride_down + kh, j * c.stride_across
                    x = at(s.work, c.x + b * c.x_block + m * c.x_m + h * c.x_row + w * LANES)
                    for kw in range(c.width):
                        for lane in range(LANES):
                            x[kw * LANES + lane] += share * y[lane]
