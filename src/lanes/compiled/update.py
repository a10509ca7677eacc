"""From gradients to parameters: SGD and Adam as in torch.optim, with FedProx's and FedDyn's terms."""

import math
from typing import Any, NamedTuple

from numba import types

from lanes.compiled.jit import jit
from lanes.compiled.native import at, f32, int64


class Update(NamedTuple):
    """Where the parameters and what the optimiser remembers are, and the optimiser's settings."""

    row: Any
    start: Any  # the row before training (FedProx)
    linear: Any  # added to the gradient (FedDyn)
    velocity: Any  # momentum; Adam: first moment
    second: Any  # Adam: second moment
    gradient: Any  # of all parameters, when it has to be complete before the update
    size: int  # parameters
    adam: int
    has_linear: int
    whole: int  # 1: update only when the whole gradient is known (clipping)
    rate: float
    momentum: float
    decay: float
    prox: float
    clip: float
    first_rate: float  # Adam: rate / (1 - beta1^t)
    second_scale: float  # Adam: 1 / sqrt(1 - beta2^t)


BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@jit
def add_terms(u: Any, p: int, g: Any, n: int) -> None:
    """The gradient of what a method adds to the loss: prox / 2 * |w - start|^2 and linear . w."""
    w = at(u.row, p)
    if u.prox != f32(0):
        start = at(u.start, p)
        prox = u.prox
        for i in range(n):
            g[i] += prox * (w[i] - start[i])
    if u.has_linear:
        linear = at(u.linear, p)
        for i in range(n):
            g[i] += linear[i]


@jit
def step(u: Any, p: int, g: Any, n: int) -> None:
    """One step of the optimiser on parameters p to p + n with the gradient g (which it may change)."""
    w, rate = at(u.row, p), u.rate
    if u.decay != f32(0):
        decay = u.decay
        for i in range(n):
            g[i] += decay * w[i]
    if u.adam:
        first, second = at(u.velocity, p), at(u.second, p)
        first_rate, second_scale = u.first_rate, u.second_scale
        for i in range(n):
            m = f32(BETA1) * first[i] + f32(1 - BETA1) * g[i]
            v = f32(BETA2) * second[i] + f32(1 - BETA2) * (g[i] * g[i])
            first[i] = m
            second[i] = v
            w[i] -= first_rate * m / (f32(math.sqrt(v)) * second_scale + f32(EPSILON))
    elif u.momentum != f32(0):
        velocity, momentum = at(u.velocity, p), u.momentum
        for i in range(n):
            v = momentum * velocity[i] + g[i]
            velocity[i] = v
            w[i] -= rate * v
    else:
        for i in range(n):
            w[i] -= rate * g[i]


@jit
def finish(u: Any, p: int, g: Any, n: int) -> None:
    """The gradient of parameters p to p + n is complete."""
    add_terms(u, p, g, n)
    if u.whole:
        kept = at(u.gradient, p)
        for i in range(n):
            kept[i] = g[i]
    else:
        step(u, p, g, n)


@jit
def finish_all(u: Any) -> None:
    """All gradients are complete: shorten them to the norm `clip` as torch's clip_grad_norm_ does."""
    if not u.whole:
        return
    total = 0.0
    for i in range(u.size):
        total += types.float64(u.gradient[i]) * types.float64(u.gradient[i])
    scale = f32(min(1.0, u.clip / (math.sqrt(total) + 1e-6)))
    for i in range(u.size):
        u.gradient[i] *= scale
    step(u, int64(0), u.gradient, u.size)
