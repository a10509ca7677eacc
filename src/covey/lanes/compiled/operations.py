"""The operations of the training machine, compiled by Numba around the vector kernels.

Plain pointers, no arrays: `pointer[i]` has no test for a negative index, so that LLVM vectorises the loops.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from covey.lanes.compiled.emit import LANES
from covey.lanes.compiled.jit import inline, jit
from covey.lanes.compiled.native import (
    at,
    contract,
    correlate,
    f32,
    pool,
    sigmoid,
    softmax,
    tanh,
    transpose,
    u32,
    unpool,
)
from covey.lanes.compiled.random import dropout_key, scramble
from covey.lanes.compiled.tiles import ROW
from covey.lanes.compiled.update import Update, finish
from covey.lanes.compiled.vector import ACCUMULATE, BIAS, ZERO

NO_FLOOR = np.float32(-np.inf)


class Machine(NamedTuple):
    """Everything an operation may touch."""

    work: Any  # workspace, floats
    marks: Any  # workspace, bytes
    scratch: Any  # workspace, one int64 a lane
    tables: Any  # constants of the program
    row: Any  # the model
    update: Update
    x: Any
    labels: Any
    targets: Any
    out: Any
    batch: Any  # indices of this batch's samples
    size: int  # samples in this batch
    seed: int  # of dropout
    step: int  # which batch this is


@jit
def places_of(s: Any, b: int, features: int) -> None:
    """Where the samples of block b begin in an array of `features` values a sample, into the scratch."""
    for lane in range(LANES):
        # A lane without a sample repeats the first: its numbers are finite, its gradient is set to zero.
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
    whole = c.features - c.features % LANES
    for i in range(0, whole, LANES):
        transpose(at(x, i * LANES), at(s.tables, c.places), at(s.out, i), s.scratch)
    for i in range(whole, c.features):
        for lane in range(LANES):
            s.out[s.scratch[lane] + i] = x[i * LANES + lane]


@jit
def conv_row(s: Any, c: Any, b: int, i: int, h: int, y: Any, y_m: int, floor: Any) -> None:
    """Row h of the output channels of chunk i."""
    m, rows = s.tables[c.m_chunks + 2 * i], s.tables[c.m_chunks + 2 * i + 1]
    top = h * c.stride - c.pad
    low, high = max(0, -top), min(c.heights, c.x_rows - top)
    count = max(0, high - low) * c.per
    taps = at(s.tables, c.taps + 2 * low * c.per)
    x = at(s.work, c.x + b * c.x_block + top * c.x_row)
    weight = at(s.row, c.weight + m * c.weight_m)
    start = ACCUMULATE if c.accumulate else (BIAS if c.bias >= 0 else ZERO)
    bias = at(s.row, max(0, c.bias) + m)
    for j in range(c.w_count):
        chunk = at(s.tables, c.w_chunks + 5 * j)
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
            rows * ROW + columns,
        )


@jit
def conv(s: Any, c: Any, b: int) -> None:
    floor = f32(0) if c.relu else NO_FLOOR
    for i in range(c.m_count):
        m = s.tables[c.m_chunks + 2 * i]
        for h in range(c.y_rows):
            y = at(s.work, c.y + b * c.y_block + m * c.y_m + h * c.y_row)
            conv_row(s, c, b, i, h, y, c.y_m, floor)


@jit
def conv_pool(s: Any, c: Any, p: Any, b: int) -> None:
    floor = f32(0) if p.relu else NO_FLOOR
    for i in range(c.m_count):
        m, rows = s.tables[c.m_chunks + 2 * i], s.tables[c.m_chunks + 2 * i + 1]
        for h in range(p.rows):
            for half in range(2):
                conv_row(s, c, b, i, 2 * h + half, at(s.work, c.y + half * c.y_row), c.y_m, NO_FLOOR)
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
    for kh in range(c.heights):
        low = max(0, -((kh - c.pad) // c.stride)) if kh < c.pad else 0
        high = min(c.rows, (c.x_rows - 1 + c.pad - kh) // c.stride + 1)
        x = at(s.work, c.x + b * c.x_block + (low * c.stride - c.pad + kh) * c.x_row)
        for i in range(c.m_count):
            m, rows = s.tables[c.m_chunks + 2 * i], s.tables[c.m_chunks + 2 * i + 1]
            delta = at(s.work, c.delta + m * c.delta_m + low * c.delta_row)
            gradient = at(s.work, c.gradient + m * c.gradient_m)
            for j in range(c.t_count):
                t, columns = s.tables[c.t_chunks + 2 * j], s.tables[c.t_chunks + 2 * j + 1]
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
                    rows * ROW + columns,
                )


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
    for i in range(c.m_count):
        m, rows = s.tables[c.m_chunks + 2 * i], s.tables[c.m_chunks + 2 * i + 1]
        for n in range(0, vectors, c.columns * c.tiles):
            here = min(c.columns * c.tiles, vectors - n)
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


@jit
def cross_entropy(s: Any, c: Any, b: int) -> Any:
    """-log softmax(x)[label], meaned over the batch; the gradient is (softmax(x) - one_hot(label)) / size."""
    most, total = at(s.work, c.scratch), at(s.work, c.scratch + LANES)
    x, d = at(s.work, c.x + b * c.x_block), at(s.work, c.d + b * c.d_block)
    live = min(LANES, s.size - b * LANES)
    share = f32(1.0 / s.size)
    softmax(x, d, c.features, most, total)
    loss = 0.0
    for lane in range(live):
        y = s.labels[s.batch[b * LANES + lane]]
        loss += math.log(total[lane]) - (x[y * LANES + lane] - most[lane])
    for lane in range(LANES):
        total[lane] = share / total[lane] if lane < live else f32(0)
    for k in range(c.features):
        e = at(d, k * LANES)
        for lane in range(LANES):
            e[lane] *= total[lane]
    for lane in range(live):
        y = s.labels[s.batch[b * LANES + lane]]
        d[y * LANES + lane] -= share
    return loss / s.size


@jit
def squared_error(s: Any, c: Any, b: int) -> Any:
    """(x - target)^2, meaned over all values of the batch; the gradient is 2 (x - target) / values."""
    x, d = at(s.work, c.x + b * c.x_block), at(s.work, c.d + b * c.d_block)
    live = min(LANES, s.size - b * LANES)
    share = 1.0 / (s.size * c.features)
    factor = f32(2 * share)
    turned = at(s.work, c.scratch)
    places_of(s, b, c.features)
    loss = 0.0
    for i in range(0, c.features, LANES):
        count = min(LANES, c.features - i)
        if count == LANES:
            transpose(at(s.targets, i), s.scratch, turned, at(s.tables, c.places))
        else:
            for lane in range(LANES):
                for j in range(count):
                    turned[j * LANES + lane] = s.targets[s.scratch[lane] + i + j]
        for j in range(count):
            error, z, g = at(turned, j * LANES), at(x, (i + j) * LANES), at(d, (i + j) * LANES)
            for lane in range(LANES):
                error[lane] = z[lane] - error[lane] if lane < live else f32(0)
                g[lane] = factor * error[lane]
            total = f32(0)
            for lane in range(LANES):
                total += error[lane] * error[lane]
            loss += total
    return loss * share


@jit
def zero(s: Any, c: Any) -> None:
    y = at(s.work, c.y)
    for i in range(c.size):
        y[i] = f32(0)
