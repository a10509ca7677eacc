"""Writes the operations of the way forward."""

import struct
from collections.abc import Mapping, Sequence

from lanes.compiled import instructions as do
from lanes.compiled.operations import Operation
from lanes.compiled.tiles import MOST_ROWS, best, split
from lanes.convolve import Target, convolve, spread
from lanes.graph import (
    Activation,
    Add,
    Affine,
    Conv,
    Copy,
    Deconv,
    Drop,
    Linear,
    MaxPool,
    MeanPool,
    Norm,
)
from lanes.places import Step
from lanes.stages import SQUARE
from lanes.whole import convolve_whole
from lanes.winograd import convolve_fast, form_of_stage
from lanes.workspace import Tensor, Writer

CACHED = 64 * 1024  # bytes of inputs of a linear layer worked on at a time
FORWARD = {"relu": Operation.RELU, "tanh": Operation.TANH, "sigmoid": Operation.SIGMOID}


def gather(w: Writer, x: Tensor, *, by_block: bool) -> None:
    """The samples of a batch into the lanes of x."""
    shape = x.shape
    places = [
        x.inside - x.place + c * x.plane + h * x.row + v * x.lanes
        for c in range(shape.channels)
        for h in range(shape.rows)
        for v in range(shape.columns)
    ]
    table = w.table(places)
    w.do(Operation.GATHER, do.Gather(x.place, x.block, shape.features, table), by_block=by_block)


def forward(
    w: Writer, step: Step, norms: dict[int, int], training: bool, fast: Mapping[int, int | None]
) -> None:
    """`norms`: where the statistics of batch normalisations are kept for the way back; `fast`: where the transformed
    weights are of the steps that convolve by Winograd's method, None where all blocks are done at once."""
    stage, kind, x, y = step.stage, step.stage.kind, step.x[0], step.y
    if isinstance(kind, Conv):
        if step.number in fast:
            _conv_fast(w, step, kind, fast[step.number])
        else:
            _conv(w, step, kind)
    elif isinstance(kind, Deconv):
        spread(w, kind, x, y, bias=kind.bias, relu=stage.relu)
    elif isinstance(kind, Linear):
        inputs = x.shape.features
        linear(w, x, y, kind.weight, (inputs, 1), bias=kind.bias, relu=stage.relu)
    elif isinstance(kind, Activation):
        w.do(FORWARD[kind.name], elementwise(x, y), by_block=step.by_block)
    elif isinstance(kind, Norm):
        w.do(
            Operation.NORM if training else Operation.NORM_FIXED,
            norm(kind, x, y, norms.get(step.number, 0)),
            by_block=step.by_block,
        )
    elif isinstance(kind, Affine):
        rescale(w, kind.factors, kind.constants, x, y, by_block=step.by_block)
    elif isinstance(kind, Drop) and training:
        drop(w, step, kind, x, y)
    elif isinstance(kind, Drop | Copy):
        if x.place != y.place:
            w.do(Operation.COPY, elementwise(x, y), by_block=step.by_block)
    elif isinstance(kind, Add):
        w.do(Operation.COPY, elementwise(x, y), by_block=step.by_block)
        w.do(Operation.ADD, elementwise(step.x[1], y), by_block=step.by_block)
    elif kind == SQUARE:
        w.do(Operation.MAX_POOL, do.Rows(x.inside, x.block, x.plane, x.row), pooling(step), by_block=True)
    elif isinstance(kind, MaxPool | MeanPool):
        w.do(
            Operation.WINDOW_MAX if isinstance(kind, MaxPool) else Operation.WINDOW_MEAN,
            window(step, kind, x, y),
            by_block=True,
        )


def elementwise(x: Tensor, y: Tensor) -> do.Elementwise:
    """Row by row, or all at once if there are no margins between."""
    rows, size = x.shape.channels * x.shape.rows, x.shape.columns * x.lanes
    if not x.margin and not y.margin:
        rows, size = 1, rows * size
    return do.Elementwise(x.inside, x.block, y.inside, y.block, rows, size, x.row, y.row)


def _conv_fast(w: Writer, step: Step, kind: Conv, transformed: int | None) -> None:
    stage, x, y = step.stage, step.x[0], Target.of(step.y)
    form = form_of_stage(stage)
    assert form is not None
    relu, pooled = stage.relu and not stage.pooled, pooling(step) if stage.pooled else None
    if transformed is None:
        convolve_whole(w, form, kind, x, kind.padding, y, bias=kind.bias, relu=relu, pooling=pooled)
    else:
        convolve_fast(w, form, x, kind.padding, transformed, y, bias=kind.bias, relu=relu, pooling=pooled)


def _conv(w: Writer, step: Step, kind: Conv) -> None:
    stage, x, y, lanes = step.stage, step.x[0], step.y, w.isa.lanes
    if not stage.pooled:
        conv = convolve(w, kind, x, Target.of(y), bias=kind.bias, relu=stage.relu)
        w.do(Operation.CONV, conv, by_block=True)
        return
    rows, columns = 2 * stage.output.rows, 2 * stage.output.columns
    scratch = Target(
        place=w.place(MOST_ROWS * 2 * columns * lanes),
        block=0,
        channel=2 * columns * lanes,
        row=columns * lanes,
        step=lanes,
        channels=stage.inner.channels,
        rows=rows,
        columns=columns,
    )
    conv = convolve(w, kind, x, scratch, bias=kind.bias)
    w.do(Operation.CONV_POOL, conv, pooling(step), by_block=True)


def linear(
    w: Writer,
    x: Tensor,
    y: Tensor,
    weight: int,
    strides: tuple[int, int],
    *,
    bias: int | None = None,
    relu: bool = False,
    accumulate: bool = False,
) -> None:
    """y[m] = sum over k of weight[m * strides[0] + k * strides[1]] * x[k], all blocks at once."""
    inputs, outputs = x.shape.features, y.shape.features
    tile = best(w.isa, outputs, w.blocks)
    m_chunks = split(outputs, tile[0])
    most = max(32, CACHED // (4 * w.isa.lanes * w.blocks))
    w.do(
        Operation.LINEAR,
        do.Linear(
            **x.whole("x"),
            inputs=inputs,
            weight=weight,
            weight_m=strides[0],
            weight_k=strides[1],
            bias=-1 if bias is None else bias,
            **y.whole("y"),
            accumulate=int(accumulate),
            relu=int(relu),
            k_block=max(length for _, length in split(inputs, most)),
            columns=tile[1],
            zeros=w.table([0, 0]),
            m_chunks=w.table(m_chunks),
            m_count=len(m_chunks),
        ),
        by_block=False,
    )


def norm(kind: Norm, x: Tensor, y: Tensor, statistics: int) -> do.Norm:
    return do.Norm(
        **x.by_row("x"),
        **y.by_row("y"),
        **vars(x.shape),
        weight=-1 if kind.weight is None else kind.weight,
        bias=-1 if kind.bias is None else kind.bias,
        mean=kind.mean,
        variance=kind.variance,
        statistics=statistics,
        momentum=_bits(kind.momentum),
        epsilon=_bits(kind.epsilon),
    )


def _bits(number: float) -> int:
    """A float64 as the int64 of the same bits."""
    return int(struct.unpack("q", struct.pack("d", number))[0])


def rescale(
    w: Writer, factors: Sequence[float], constants: Sequence[float], x: Tensor, y: Tensor, *, by_block: bool
) -> None:
    """y = factor * x + constant, by channel."""
    numbers = [(_bits(f), _bits(c)) for f, c in zip(factors, constants, strict=True)]
    places = (x.inside, x.block, x.row, y.inside, y.block, y.row)
    shape = (x.shape.channels, x.shape.rows, x.shape.columns)
    w.do(Operation.RESCALE, do.Rescale(*places, *shape, w.table(numbers)), by_block=by_block)


def drop(w: Writer, step: Step, kind: Drop, x: Tensor, y: Tensor) -> None:
    shape = x.shape
    w.do(
        Operation.DROPOUT,
        do.Dropout(
            **x.by_row("x"),
            **y.by_row("y"),
            rows=shape.channels * shape.rows,
            columns=shape.columns,
            shared=shape.rows if kind.channels else 0,
            layer=step.number,
            keep=round((1 - kind.share) * 2**32),
        ),
        by_block=step.by_block,
    )


def pooling(step: Step) -> do.Pooling:
    y = step.y
    size = y.shape.rows * y.shape.columns * y.lanes
    return do.Pooling(
        **y.by_channel("y"),
        **vars(y.shape),
        marks=step.marks,
        marks_block=y.shape.channels * size,
        marks_m=size,
        relu=int(step.stage.relu),
    )


def window(
    step: Step, kind: MaxPool | MeanPool, x: Tensor, y: Tensor, *, accumulate: bool = False
) -> do.Window:
    padding = kind.padding if isinstance(kind, MaxPool) else (0, 0)
    return do.Window(
        **x.by_channel("x"),
        x_rows=x.shape.rows,
        x_columns=x.shape.columns,
        **y.by_channel("y"),
        **vars(y.shape),
        height=kind.kernel[0],
        width=kind.kernel[1],
        stride_down=kind.stride[0],
        stride_across=kind.stride[1],
        pad_down=padding[0],
        pad_across=padding[1],
        marks=step.marks,
        accumulate=int(accumulate),
    )
