"""The training machine: carries out a program for every batch."""

from typing import Any

from lanes.compiled import apart, dropouts, linears, losses, moving, samples
from lanes.compiled import instructions as do
from lanes.compiled.emit import LANES
from lanes.compiled.jit import jit
from lanes.compiled.native import at, f32, fields, int64
from lanes.compiled.operations import PARTS, PER_PART, WIDTH, Operation
from lanes.compiled.state import Machine
from lanes.compiled.update import BETA1, BETA2, Update, finish, finish_all

IMAGES, WINDOWS, NORMS, WINOGRAD = (PARTS.index(name) for name in ("images", "windows", "norms", "winograd"))


@jit
def on_samples(s: Any, operation: int, c: Any, b: int) -> None:
    """An operation on single samples of block b."""
    if operation == Operation.LINEAR_SQUARES:
        samples.linear_squares(s, fields(do.LinearSquares, c), b)
    elif operation == Operation.CONV_SQUARES:
        samples.conv_squares(s, fields(do.ConvSquares, c), b)
    elif operation == Operation.LENGTHS:
        samples.lengths(s, fields(do.Lengths, c), b)
    elif operation == Operation.WEIGH:
        samples.weigh(s, fields(do.Weigh, c), b)


@jit
def on_values(s: Any, operation: int, c: Any, b: int) -> None:
    """An operation on single values of block b."""
    if operation == Operation.RELU:
        moving.relu(s, fields(do.Elementwise, c), b)
    elif operation == Operation.RELU_BACK:
        moving.relu_back(s, fields(do.Elementwise, c), b)
    elif operation == Operation.TANH:
        moving.apply_tanh(s, fields(do.Elementwise, c), b)
    elif operation == Operation.TANH_BACK:
        moving.tanh_back(s, fields(do.Elementwise, c), b)
    elif operation == Operation.SIGMOID:
        moving.apply_sigmoid(s, fields(do.Elementwise, c), b)
    elif operation == Operation.SIGMOID_BACK:
        moving.sigmoid_back(s, fields(do.Elementwise, c), b)
    elif operation == Operation.COPY:
        moving.copy(s, fields(do.Elementwise, c), b)
    elif operation == Operation.ADD:
        moving.add(s, fields(do.Elementwise, c), b)
    elif operation == Operation.DROPOUT:
        dropouts.dropout(s, fields(do.Dropout, c), b)
    elif operation == Operation.GATHER:
        moving.gather(s, fields(do.Gather, c), b)
    elif operation == Operation.SCATTER:
        moving.scatter(s, fields(do.Scatter, c), b)
    elif operation == Operation.ZERO:
        moving.zero(s, fields(do.Zero, c), b)


@jit
def execute(s: Any, operation: int, c: Any, b0: int, b1: int) -> float:
    """One operation on the blocks b0 to b1; returns the loss if it is one."""
    loss = 0.0
    part = operation // PER_PART
    if part == IMAGES:
        apart.images(s, operation, c, b0, b1)
    elif part == WINDOWS:
        apart.windows(s, operation, c, b0, b1)
    elif part == NORMS:
        apart.norms(s, operation, c, b0, b1)
    elif part == WINOGRAD:
        apart.winograd(s, operation, c, b0, b1)
    elif operation == Operation.LINEAR:
        linears.linear(s, fields(do.Linear, c), b0, b1)
    elif operation == Operation.LINEAR_GRAD:
        linears.linear_grad(s, fields(do.LinearGrad, c), b0, b1)
    elif operation == Operation.FINISH:
        g = fields(do.Finish, c)
        finish(s.update, g.parameter, at(s.work, g.gradient), g.size)
    elif operation == Operation.FINISH_ALL:
        finish_all(s.update)
    else:
        for b in range(b0, b1):
            if operation == Operation.CROSS_ENTROPY:
                loss += losses.cross_entropy(s, fields(do.Loss, c), b)
            elif operation == Operation.SQUARED_ERROR:
                loss += losses.squared_error(s, fields(do.Loss, c), b)
            else:
                on_values(s, operation, c, b)
                on_samples(s, operation, c, b)
    return loss


@jit
def run(
    program: Any,
    phases: Any,
    phase_count: int,
    tables: Any,
    work: Any,
    bytes_: Any,
    scratch: Any,
    row: Any,
    start: Any,
    linear: Any,
    velocity: Any,
    second: Any,
    gradient: Any,
    settings: Any,
    x: Any,
    labels: Any,
    targets: Any,
    out: Any,
    order: Any,
    offsets: Any,
    batches: int,
    losses: Any,
    seed: int,
    size: int,
    adam: int,
    has_linear: int,
    whole: int,
) -> int:
    """All batches; a phase is (first operation, end, 1 if block after block), `losses` one per batch."""
    first_power, second_power = 1.0, 1.0
    for k in range(batches):
        first_power *= BETA1
        second_power *= BETA2
        update = Update(
            row,
            start,
            linear,
            velocity,
            second,
            gradient,
            size,
            adam,
            has_linear,
            whole,
            settings[0],
            settings[1],
            settings[2],
            settings[3],
            settings[4],
            f32(settings[0] / (1 - first_power)),
            f32(1 / (1 - second_power) ** 0.5),
        )
        count = offsets[k + 1] - offsets[k]
        batch = at(order, offsets[k])
        s = Machine(
            work, bytes_, scratch, tables, row, update, x, labels, targets, out, batch, count, seed, k
        )
        blocks = (count + LANES - 1) // LANES
        loss = 0.0
        for p in range(phase_count):
            phase = at(phases, 3 * p)
            if phase[2]:
                for b in range(blocks):
                    for i in range(phase[0], phase[1]):
                        c = at(program, i * WIDTH)
                        loss += execute(s, c[0], at(c, 1), b, b + 1)
            else:
                for i in range(phase[0], phase[1]):
                    c = at(program, i * WIDTH)
                    loss += execute(s, c[0], at(c, 1), int64(0), blocks)
        losses[k] = loss
    return 0


@jit
def each(calls: Any, count: int) -> int:
    """That many calls of `run`, whose arguments lie one after the other as numbers of 64 bits."""
    for k in range(count):
        run(*apart.arguments(at(calls, k * apart.ARGUMENTS)))
    return 0
