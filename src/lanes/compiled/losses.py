"""Losses and their gradients by the output."""

import math
from typing import Any

from lanes.compiled.emit import LANES
from lanes.compiled.jit import jit
from lanes.compiled.moving import places_of
from lanes.compiled.native import at, f32, softmax, transpose


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
