"""The training machine: carries out a program for every batch."""

from typing import Any

from covey.lanes.compiled import operations
from covey.lanes.compiled.emit import LANES
from covey.lanes.compiled.instructions import (
    WIDTH,
    Conv,
    ConvGrad,
    Delta,
    Dropout,
    Elementwise,
    Finish,
    Gather,
    Linear,
    LinearGrad,
    Loss,
    Operation,
    Pooling,
    Rows,
    Scatter,
    Zero,
)
from covey.lanes.compiled.jit import jit
from covey.lanes.compiled.native import at, doubles, f32, fields, floats, int64, ints, marks
from covey.lanes.compiled.operations import Machine
from covey.lanes.compiled.update import BETA1, BETA2, Update, finish, finish_all

POOLING, ROWS = len(Conv._fields), len(Rows._fields)


@jit
def execute_block(s: Any, operation: int, c: Any, b: int) -> Any:
    """One operation on block b; the loss if it is one."""
    if operation == Operation.CONV:
        operations.conv(s, fields(Conv, c), b)
    elif operation == Operation.CONV_POOL:
        operations.conv_pool(s, fields(Conv, c), fields(Pooling, at(c, POOLING)), b)
    elif operation == Operation.MAX_POOL:
        operations.max_pool(s, fields(Rows, c), fields(Pooling, at(c, ROWS)), b)
    elif operation == Operation.DELTA:
        operations.delta(s, fields(Delta, c), b)
    elif operation == Operation.CONV_GRAD:
        operations.conv_grad(s, fields(ConvGrad, c), b)
    elif operation == Operation.RELU:
        operations.relu(s, fields(Elementwise, c), b)
    elif operation == Operation.RELU_BACK:
        operations.relu_back(s, fields(Elementwise, c), b)
    elif operation == Operation.TANH:
        operations.apply_tanh(s, fields(Elementwise, c), b)
    elif operation == Operation.TANH_BACK:
        operations.tanh_back(s, fields(Elementwise, c), b)
    elif operation == Operation.SIGMOID:
        operations.apply_sigmoid(s, fields(Elementwise, c), b)
    elif operation == Operation.SIGMOID_BACK:
        operations.sigmoid_back(s, fields(Elementwise, c), b)
    elif operation == Operation.COPY:
        operations.copy(s, fields(Elementwise, c), b)
    elif operation == Operation.DROPOUT:
        operations.dropout(s, fields(Dropout, c), b)
    elif operation == Operation.GATHER:
        operations.gather(s, fields(Gather, c), b)
    elif operation == Operation.SCATTER:
        operations.scatter(s, fields(Scatter, c), b)
    elif operation == Operation.CROSS_ENTROPY:
        return operations.cross_entropy(s, fields(Loss, c), b)
    elif operation == Operation.SQUARED_ERROR:
        return operations.squared_error(s, fields(Loss, c), b)
    return 0.0


@jit
def execute(s: Any, operation: int, c: Any, b0: int, b1: int) -> float:
    """One operation on the blocks b0 to b1."""
    loss = 0.0
    if operation == Operation.LINEAR:
        operations.linear(s, fields(Linear, c), b0, b1)
    elif operation == Operation.LINEAR_GRAD:
        operations.linear_grad(s, fields(LinearGrad, c), b0, b1)
    elif operation == Operation.ZERO:
        operations.zero(s, fields(Zero, c))
    elif operation == Operation.FINISH:
        c = fields(Finish, c)
        finish(s.update, c.parameter, at(s.work, c.gradient), c.size)
    elif operation == Operation.FINISH_ALL:
        finish_all(s.update)
    else:
        for b in range(b0, b1):
            loss += execute_block(s, operation, c, b)
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
    """All batches; a phase is (first operation, end, 1 if block after block), `losses` one a batch."""
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
                    loss += execute(s, c[0], at(c, 1), 0, blocks)
        losses[k] = loss
    return 0


SIGNATURE = (
    *(ints, ints, int64, ints, floats, marks, ints),
    *(floats, floats, floats, floats, floats, floats, floats),
    *(floats, ints, floats, floats, ints, ints, int64, doubles),
    *(int64, int64, int64, int64, int64),
)
