"""Plans the workspace of a model and writes the program that trains it, or only runs it forward."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covey.lanes.compiled import instructions as do
from covey.lanes.compiled.instructions import WIDTH, Operation
from covey.lanes.compiled.isa import Isa
from covey.lanes.compiled.tiles import Reach, best, cover, split
from covey.lanes.layers import Activation, Chain, Conv, Copy, Drop, Linear, MaxPool, Shape
from covey.lanes.stages import Stage, stages

ALIGN = 16  # floats: a cache line
L1 = 24 * 1024  # bytes of inputs of a linear layer worked on at a time
TILE_BYTES = 16 * 1024  # of gradient made before it is used

Mode = Literal["cross-entropy", "mse", "forward"]


@dataclass(frozen=True, kw_only=True)
class Program:
    """Ready for the machine; serves batches of up to `blocks` blocks of samples."""

    code: NDArray[np.int64]
    phases: NDArray[np.int64]
    tables: NDArray[np.int64]
    floats: int
    marks: int
    blocks: int


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """`[block][channel][row][column][lane]` in the workspace, each row with zeros left and right of it."""

    place: int
    shape: Shape
    margin: int  # columns of zeros at each side
    block: int  # floats between two blocks; 0: one block serves all
    lanes: int

    @property
    def row(self) -> int:
        return (self.shape.columns + 2 * self.margin) * self.lanes

    @property
    def plane(self) -> int:
        return self.shape.rows * self.row

    @property
    def inside(self) -> int:
        return self.place + self.margin * self.lanes

    def column(self, w: int) -> int:
        """Where column w of the first row is; negative ones are in the margin."""
        return self.inside + w * self.lanes


@dataclass(kw_only=True)
class _Writer:
    """The program as it grows."""

    isa: Isa
    blocks: int
    rows: list[list[int]] = field(default_factory=list)
    by_block: list[bool] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    floats: int = 0
    marks: int = 0

    def place(self, size: int) -> int:
        start = self.floats
        self.floats += -(-size // ALIGN) * ALIGN
        return start

    def tensor(self, shape: Shape, *, margin: int = 0, shared: bool = False) -> Tensor:
        lanes = self.isa.lanes
        size = shape.channels * shape.rows * (shape.columns + 2 * margin) * lanes
        place = self.place(size if shared else size * self.blocks)
        return Tensor(place=place, shape=shape, margin=margin, block=0 if shared else size, lanes=lanes)

    def table(self, numbers: Sequence[int] | Sequence[Sequence[int]]) -> int:
        start = len(self.constants)
        for number in numbers:
            self.constants.extend([number] if isinstance(number, int) else number)
        return start

    def do(self, operation: Operation, *fields: NamedTuple, by_block: bool) -> None:
        row = [int(operation), *(int(value) for part in fields for value in part)]
        self.rows.append(row + [0] * (WIDTH - len(row)))
        self.by_block.append(by_block)

    def finish(self) -> Program:
        phases: list[list[int]] = []
        for i, by_block in enumerate(self.by_block):
            if phases and phases[-1][2] == by_block:
                phases[-1][1] = i + 1
            else:
                phases.append([i, i + 1, int(by_block)])
        slack = self.isa.lanes**2  # a transposition reads whole squares
        return Program(
            code=np.array(self.rows, np.int64),
            phases=np.array(phases, np.int64),
            tables=np.array(self.constants or [0], np.int64),
            floats=self.floats + slack,
            marks=max(1, self.marks),
            blocks=self.blocks,
        )


@dataclass(frozen=True, kw_only=True)
class _Step:
    """A stage with its places."""

    stage: Stage
    x: Tensor
    y: Tensor
    marks: int = 0
    layer: int = 0  # number of the stage: the key of its dropout

    @property
    def by_block(self) -> bool:
        """Images go through the layers block after block, still in the cache; vectors all at once."""
        return self.stage.inner.rows * self.stage.inner.columns > 1 or isinstance(self.stage.kind, Conv)


def write(chain: Chain, isa: Isa, blocks: int, mode: Mode) -> Program:
    """The program for batches of up to `blocks` times `isa.lanes` samples."""
    w = _Writer(isa=isa, blocks=blocks)
    steps = _places(w, stages(chain))
    training = mode != "forward"
    gradients = _convolution_gradients(w, steps) if training else {}
    _gather(w, steps[0].x, by_block=steps[0].by_block)
    for step in steps:
        _forward(w, step, training)
    result = steps[-1].y
    if not training:
        places = w.table([k * isa.lanes for k in range(isa.lanes)])
        scatter = do.Scatter(result.place, result.block, result.shape.features, places)
        w.do(Operation.SCATTER, scatter, by_block=False)
        return w.finish()
    d = _gradient_of(w, steps, len(steps) - 1)
    loss = Operation.CROSS_ENTROPY if mode == "cross-entropy" else Operation.SQUARED_ERROR
    w.do(
        loss,
        do.Loss(
            x=result.place,
            x_block=result.block,
            d=d.place,
            d_block=d.block,
            features=result.shape.features,
            scratch=w.place(isa.lanes**2),
            places=w.table([k * isa.lanes for k in range(isa.lanes)]),
        ),
        by_block=False,
    )
    first = next(i for i, step in enumerate(steps) if isinstance(step.stage.kind, Conv | Linear))
    for i in reversed(range(first, len(steps))):
        d = _backward(w, steps, i, d, gradients.get(i, -1), onwards=i > first)
    for i, place in gradients.items():
        _finish(w, steps[i], place)
    w.do(Operation.FINISH_ALL, by_block=False)
    return w.finish()


def _places(w: _Writer, found: list[Stage]) -> list[_Step]:
    """Gives every stage its input and its output."""
    x = w.tensor(found[0].input, margin=_margin(found[0]))
    steps: list[_Step] = []
    for i, stage in enumerate(found):
        following = found[i + 1] if i + 1 < len(found) else None
        margin = _margin(following)
        in_place = not margin and i > 0 and _in_place(stage, found[i - 1])
        y = x if in_place else w.tensor(stage.output, margin=margin)
        marks = w.marks
        if stage.pooled or isinstance(stage.kind, MaxPool):
            w.marks += stage.output.features * w.isa.lanes * w.blocks
        steps.append(_Step(stage=stage, x=x, y=y, marks=marks, layer=i))
        x = replace(y, shape=following.input) if following else y
    return steps


def _in_place(stage: Stage, before: Stage) -> bool:
    """Whether it may overwrite its input: the stage before needs it not, or only where it is positive."""
    if isinstance(before.kind, Activation):
        return False
    return isinstance(stage.kind, Drop) or (isinstance(stage.kind, Activation) and not before.relu)


def _margin(stage: Stage | None) -> int:
    return stage.kind.padding[1] if stage is not None and isinstance(stage.kind, Conv) else 0


def _gradient_of(w: _Writer, steps: list[_Step], i: int) -> Tensor:
    """Room for the gradient by the output of step i; one block serves all where block follows block."""
    after = steps[i + 1] if i + 1 < len(steps) else None
    shared = after is not None and after.by_block and steps[i].by_block
    return w.tensor(steps[i].stage.output, shared=shared)


def _gather(w: _Writer, x: Tensor, *, by_block: bool) -> None:
    shape = x.shape
    places = [
        x.inside - x.place + c * x.plane + h * x.row + v * x.lanes
        for c in range(shape.channels)
        for h in range(shape.rows)
        for v in range(shape.columns)
    ]
    w.do(Operation.GATHER, do.Gather(x.place, x.block, shape.features, w.table(places)), by_block=by_block)


def _convolution_gradients(w: _Writer, steps: list[_Step]) -> dict[int, int]:
    """Convolutions add up their gradient block after block: room for weight and bias, zero at the start."""
    found = {}
    for i, step in enumerate(steps):
        if isinstance(step.stage.kind, Conv):
            size = _weights(step.stage) + step.stage.inner.channels
            found[i] = w.place(size)
            w.do(Operation.ZERO, do.Zero(found[i], size), by_block=False)
    return found


def _weights(stage: Stage) -> int:
    kernel = stage.kind.kernel if isinstance(stage.kind, Conv) else (1, 1)
    return stage.inner.channels * stage.input.channels * kernel[0] * kernel[1]


def _finish(w: _Writer, step: _Step, place: int) -> None:
    kind, size = step.stage.kind, _weights(step.stage)
    if isinstance(kind, Conv):
        w.do(Operation.FINISH, do.Finish(place, kind.weight, size), by_block=False)
        if kind.bias is not None:
            bias = do.Finish(place + size, kind.bias, step.stage.inner.channels)
            w.do(Operation.FINISH, bias, by_block=False)


def _forward(w: _Writer, step: _Step, training: bool) -> None:
    kind, x, y = step.stage.kind, step.x, step.y
    if isinstance(kind, Conv):
        _conv_forward(w, step, kind)
    elif isinstance(kind, Linear):
        inputs, outputs = x.shape.features, y.shape.features
        _linear(
            w, x, y, kind.weight, inputs, 1, inputs, outputs, bias=kind.bias, relu=step.stage.relu, k_most=L1
        )
    elif isinstance(kind, Activation):
        operation = {"relu": Operation.RELU, "tanh": Operation.TANH, "sigmoid": Operation.SIGMOID}[kind.name]
        w.do(operation, _elementwise(x, y), by_block=step.by_block)
    elif isinstance(kind, Drop):
        if training:
            _drop(w, step, kind, x, y)
        elif x != y:
            w.do(Operation.COPY, _elementwise(x, y), by_block=step.by_block)
    elif isinstance(kind, Copy):
        w.do(Operation.COPY, _elementwise(x, y), by_block=True)
    elif isinstance(kind, MaxPool):
        w.do(Operation.MAX_POOL, do.Rows(x.inside, x.block, x.plane, x.row), _pooling(step), by_block=True)


def _elementwise(x: Tensor, y: Tensor) -> do.Elementwise:
    """Row by row, or all at once if there are no margins between."""
    rows, size = x.shape.channels * x.shape.rows, x.shape.columns * x.lanes
    if not x.margin and not y.margin:
        rows, size = 1, rows * size
    return do.Elementwise(x.inside, x.block, y.inside, y.block, rows, size, x.row, y.row)


def _drop(w: _Writer, step: _Step, kind: Drop, x: Tensor, y: Tensor) -> None:
    shape = x.shape
    w.do(
        Operation.DROPOUT,
        do.Dropout(
            x=x.inside,
            x_block=x.block,
            y=y.inside,
            y_block=y.block,
            rows=shape.channels * shape.rows,
            columns=shape.columns,
            x_row=x.row,
            y_row=y.row,
            shared=shape.rows if kind.channels else 0,
            layer=step.layer,
            keep=round((1 - kind.share) * 2**32),
        ),
        by_block=step.by_block,
    )


def _pooling(step: _Step) -> do.Pooling:
    y = step.y
    size = y.shape.rows * y.shape.columns * y.lanes
    return do.Pooling(
        y=y.inside,
        y_block=y.block,
        y_m=y.plane,
        y_row=y.row,
        channels=y.shape.channels,
        rows=y.shape.rows,
        columns=y.shape.columns,
        marks=step.marks,
        marks_block=y.shape.channels * size,
        marks_m=size,
        relu=int(step.stage.relu),
    )


def _conv_forward(w: _Writer, step: _Step, kind: Conv) -> None:
    stage, x, y, lanes = step.stage, step.x, step.y, w.isa.lanes
    (kh, kw), inputs, area = kind.kernel, stage.input.channels, kind.kernel[0] * kind.kernel[1]
    rows, columns = stage.inner.rows, stage.inner.columns
    if stage.pooled:
        rows, columns = 2 * stage.output.rows, 2 * stage.output.columns
        scratch = 8 * 2 * columns * lanes
        place, y_block, y_m, y_row = w.place(scratch), 0, 2 * columns * lanes, columns * lanes
    else:
        place, y_block, y_m, y_row = y.inside, y.block, y.plane, y.row
    taps = [(c * area + h * kw, h * x.row + c * x.plane) for h in range(kh) for c in range(inputs)]
    conv = _conv(
        w,
        x=x.column(-kind.padding[1]),
        source=x,
        x_rows=x.shape.rows,
        pad=kind.padding[0],
        weight=kind.weight,
        weight_m=inputs * area,
        bias=kind.bias,
        taps=taps,
        heights=kh,
        reach=Reach(taps=kw, stride=1, pad=kind.padding[1], width=x.shape.columns),
        w_run=1,
        y=(place, y_block, y_m, y_row),
        size=(stage.inner.channels, rows, columns),
        relu=stage.relu and not stage.pooled,
    )
    if stage.pooled:
        w.do(Operation.CONV_POOL, conv, _pooling(step), by_block=True)
    else:
        w.do(Operation.CONV, conv, by_block=True)


def _conv(
    w: _Writer,
    *,
    x: int,
    source: Tensor,
    x_rows: int,
    pad: int,
    weight: int,
    weight_m: int,
    bias: int | None,
    taps: list[tuple[int, int]],
    heights: int,
    reach: Reach,
    w_run: int,
    y: tuple[int, int, int, int],
    size: tuple[int, int, int],
    relu: bool = False,
) -> do.Conv:
    channels, rows, columns = size
    height, spans = cover(w.isa, channels, columns, reach, len(taps))
    m_chunks = split(channels, height)
    w_chunks = [(s.start, s.columns, s.tiles, s.skip, s.run) for s in spans]
    return do.Conv(
        x=x,
        x_block=source.block,
        x_row=source.row,
        x_step=w.isa.lanes,
        x_rows=x_rows,
        stride=1,
        pad=pad,
        weight=weight,
        weight_m=weight_m,
        bias=-1 if bias is None else bias,
        taps=w.table(taps),
        heights=heights,
        per=len(taps) // heights,
        w_run=w_run,
        x_run=w.isa.lanes,
        y=y[0],
        y_block=y[1],
        y_m=y[2],
        y_row=y[3],
        y_step=w.isa.lanes,
        y_rows=rows,
        accumulate=0,
        relu=int(relu),
        m_chunks=w.table(m_chunks),
        m_count=len(m_chunks),
        w_chunks=w.table(w_chunks),
        w_count=len(w_chunks),
    )


def _linear(
    w: _Writer,
    x: Tensor,
    y: Tensor,
    weight: int,
    weight_m: int,
    weight_k: int,
    inputs: int,
    outputs: int,
    *,
    bias: int | None,
    relu: bool,
    k_most: int,
) -> None:
    tile = best(w.isa, outputs, w.blocks)
    m_chunks = split(outputs, tile[0])
    most = max(32, k_most // (4 * w.isa.lanes * w.blocks))
    w.do(
        Operation.LINEAR,
        do.Linear(
            x=x.place,
            x_block=x.block,
            inputs=inputs,
            weight=weight,
            weight_m=weight_m,
            weight_k=weight_k,
            bias=-1 if bias is None else bias,
            y=y.place,
            y_block=y.block,
            accumulate=0,
            relu=int(relu),
            k_block=max(length for _, length in split(inputs, most)),
            columns=tile[1],
            zeros=w.table([0, 0]),
            m_chunks=w.table(m_chunks),
            m_count=len(m_chunks),
        ),
        by_block=False,
    )


def _backward(w: _Writer, steps: list[_Step], i: int, d: Tensor, gradient: int, *, onwards: bool) -> Tensor:
    """From the gradient d by the output of step i to the one by its input, if that goes onwards."""
    step = steps[i]
    kind, x, y = step.stage.kind, step.x, step.y
    if isinstance(kind, Activation):
        back = {"relu": Operation.RELU_BACK, "tanh": Operation.TANH_BACK, "sigmoid": Operation.SIGMOID_BACK}
        w.do(back[kind.name], _elementwise(y, d), by_block=step.by_block)
        return d
    if isinstance(kind, Drop):
        _drop(w, step, kind, d, d)
        return d
    if isinstance(kind, MaxPool):
        before = _gradient_of(w, steps, i - 1)
        w.do(Operation.DELTA, _delta(w, step, d, before, -1), by_block=True)
        return before
    if isinstance(kind, Copy):
        return d
    if isinstance(kind, Linear):
        if step.stage.relu:
            w.do(Operation.RELU_BACK, _elementwise(y, d), by_block=False)
        inputs, outputs = x.shape.features, y.shape.features
        before = d
        if onwards:
            before = _gradient_of(w, steps, i - 1)
            _linear(w, d, before, kind.weight, 1, inputs, outputs, inputs, bias=None, relu=False, k_most=L1)
        _linear_gradient(w, kind, x, d, inputs, outputs)
        return before
    return _conv_backward(w, steps, i, d, gradient, onwards=onwards)


def _linear_gradient(w: _Writer, kind: Linear, x: Tensor, d: Tensor, inputs: int, outputs: int) -> None:
    lanes = w.isa.lanes
    vectors = -(-inputs // lanes)
    tile = best(w.isa, outputs, vectors)
    m_chunks = split(outputs, tile[0])
    tiles = max(1, TILE_BYTES // (4 * tile[0] * tile[1] * lanes))
    row = vectors * lanes + (lanes if vectors % 4 == 0 else 0)  # rows a power of two apart share cache lines
    w.do(
        Operation.LINEAR_GRAD,
        do.LinearGrad(
            x=x.place,
            x_block=x.block,
            d=d.place,
            d_block=d.block,
            inputs=inputs,
            outputs=outputs,
            weight=kind.weight,
            bias=-1 if kind.bias is None else kind.bias,
            turned=w.place(w.blocks * lanes * row),
            turned_row=row,
            places=w.table([k * lanes for k in range(lanes)] + [k * row for k in range(lanes)]),
            gradient=w.place(max(tile[0] * tile[1] * tiles * lanes, outputs)),
            columns=tile[1],
            tiles=tiles,
            m_chunks=w.table(m_chunks),
            m_count=len(m_chunks),
            blocks=w.table([(b * d.block, b * lanes * row) for b in range(w.blocks)]),
        ),
        by_block=False,
    )


def _delta(w: _Writer, step: _Step, d: Tensor, delta: Tensor, bias: int) -> do.Delta:
    y = step.y
    pooled = step.stage.pooled or isinstance(step.stage.kind, MaxPool)
    return do.Delta(
        d=d.place,
        d_block=d.block,
        y=y.inside,
        y_block=y.block,
        y_m=y.plane,
        y_row=y.row,
        marks=step.marks,
        marks_block=y.shape.features * y.lanes,
        delta=delta.inside,
        delta_block=delta.block,
        delta_m=delta.plane,
        delta_row=delta.row,
        channels=y.shape.channels,
        rows=y.shape.rows,
        columns=y.shape.columns,
        pooled=int(pooled),
        relu=int(step.stage.relu),
        bias_gradient=bias,
        total=w.place(w.isa.lanes),
    )


def _conv_backward(
    w: _Writer, steps: list[_Step], i: int, d: Tensor, gradient: int, *, onwards: bool
) -> Tensor:
    step = steps[i]
    stage, kind, x, lanes = step.stage, step.stage.kind, step.x, w.isa.lanes
    if not isinstance(kind, Conv):
        raise TypeError(f"no convolution: {kind}")
    (kh, kw), (ph, pw), inputs = kind.kernel, kind.padding, stage.input.channels
    area, outputs = kh * kw, stage.inner.channels
    margin = max(0, kw - 1 - pw) if onwards else 0
    delta = w.tensor(stage.inner, margin=margin, shared=True)
    bias = gradient + _weights(stage) if kind.bias is not None else -1
    w.do(Operation.DELTA, _delta(w, step, d, delta, bias), by_block=True)
    rows, columns = stage.inner.rows, stage.inner.columns
    if stage.pooled:
        rows, columns = 2 * stage.output.rows, 2 * stage.output.columns
    taps = [
        (v * lanes + c * x.plane, c * area + h * kw + v)
        for h in range(kh)
        for c in range(inputs)
        for v in range(kw)
    ]
    tile = best(w.isa, outputs, inputs * kw)
    m_chunks, t_chunks = split(outputs, tile[0]), split(inputs * kw, tile[1])
    w.do(
        Operation.CONV_GRAD,
        do.ConvGrad(
            x=x.column(-pw),
            x_block=x.block,
            x_row=x.row,
            x_step=lanes,
            x_rows=x.shape.rows,
            stride=1,
            pad=ph,
            delta=delta.inside,
            delta_m=delta.plane,
            delta_row=delta.row,
            rows=rows,
            columns=columns,
            heights=kh,
            taps=w.table(taps),
            per=inputs * kw,
            gradient=gradient,
            gradient_m=inputs * area,
            m_chunks=w.table(m_chunks),
            m_count=len(m_chunks),
            t_chunks=w.table(t_chunks),
            t_count=len(t_chunks),
        ),
        by_block=True,
    )
    if not onwards:
        return d
    before = _gradient_of(w, steps, i - 1)
    flipped = [
        (c * inputs * area + (kh - 1 - h) * kw + kw - 1, h * delta.row + c * delta.plane)
        for h in range(kh)
        for c in range(outputs)
    ]
    place = Tensor(place=before.place, shape=stage.input, margin=0, block=before.block, lanes=lanes)
    conv = _conv(
        w,
        x=delta.column(pw - kw + 1),
        source=delta,
        x_rows=rows,
        pad=kh - 1 - ph,
        weight=kind.weight,
        weight_m=area,
        bias=None,
        taps=flipped,
        heights=kh,
        reach=Reach(taps=kw, stride=1, pad=kw - 1 - pw, width=columns),
        w_run=-1,
        y=(place.place, place.block, place.plane, place.row),
        size=(inputs, stage.input.rows, stage.input.columns),
    )
    w.do(Operation.CONV, conv, by_block=True)
    return before
