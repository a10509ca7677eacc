"""Writes the operations of the way back: from the gradient of the loss to those of all parameters."""

from typing import NamedTuple

from lanes.compiled import instructions as do
from lanes.compiled.operations import Operation
from lanes.compiled.tiles import best, split
from lanes.convolve import Target, convolve, spread, weight_gradient
from lanes.forward import drop, elementwise, linear, norm, rescale, window
from lanes.geometry import Comb
from lanes.graph import (
    Activation,
    Add,
    Affine,
    Conv,
    Deconv,
    Drop,
    Linear,
    MaxPool,
    MeanPool,
    Norm,
    Shape,
)
from lanes.places import Step
from lanes.samples import conv_squares, linear_squares
from lanes.stages import SQUARE, has_parameters, looked_at
from lanes.turned import weight_gradient_turned
from lanes.whole import convolve_whole, weight_gradient_whole
from lanes.winograd import convolve_fast, form_back, form_of_stage, weight_gradient_fast
from lanes.workspace import Tensor, Writer

TILE_BYTES = 16 * 1024  # of a linear layer's gradient made before it is used
BACK = {"relu": Operation.RELU_BACK, "tanh": Operation.TANH_BACK, "sigmoid": Operation.SIGMOID_BACK}


class Backward:
    """Keeps the gradients by the values on the way back through the steps."""

    def __init__(
        self,
        w: Writer,
        steps: list[Step],
        norms: dict[int, int],
        sums: dict[int, int],
        squares: int | None = None,
    ) -> None:
        self.w = w
        self.steps = steps
        self.norms = norms  # statistics of batch normalisations
        self.sums = sums  # where convolutions add up their gradients
        # where the squared lengths of samples' gradients go, in place of the gradients
        self.squares = squares
        self.fast: set[int] = set()  # steps that convolve by Winograd's method
        # steps whose gradient is made once per batch, and their weights updated on the way
        self.updated: set[int] = set()
        # of those in `fast`, where their weights are for the gradient by their input; None: all blocks are done at once
        self.fast_back: dict[int, int | None] = {}
        # what is left to be done once per batch, when all blocks are through and no weight is needed any more
        self.late: list[tuple[Operation, tuple[NamedTuple, ...]]] = []
        self.gradients: dict[int, Tensor] = {}  # by value, as far as known
        self.last_user = {value: step.number for step in steps for value in step.stage.inputs}
        self.needed = [False]  # whether parameters lie before a value
        for step in steps:
            before = any(self.needed[value] for value in step.stage.inputs)
            self.needed.append(before or has_parameters(step.stage))

    def start(self) -> Tensor:
        """Room for the gradient by the model's output."""
        value = len(self.steps)
        self.gradients[value] = self._tensor(value)
        return self.gradients[value]

    def run(self) -> None:
        for step in reversed(self.steps):
            if self.needed[step.number + 1]:
                self._back(step, self.gradients.pop(step.number + 1))

    def _tensor(self, value: int) -> Tensor:
        """One block's room serves all if its makers and users follow one another block after block."""
        shape = self.steps[value - 1].stage.output
        return self.w.tensor(shape, shared=self._local(value))

    def _local(self, value: int) -> bool:
        last = self.last_user.get(value)
        return last is not None and all(step.by_block for step in self.steps[value - 1 : last + 1])

    def _into(self, value: int, shape: Shape) -> tuple[Tensor, bool]:
        """Where to write the gradient by a value, and whether to add to what is there."""
        known = value in self.gradients
        if not known:
            self.gradients[value] = self._tensor(value)
        return self.gradients[value].seen_as(shape), known

    def _give(self, value: int, d: Tensor, by_block: bool, *, keep: bool = False) -> None:
        """Hands the gradient d on to a value; unless d is still needed (keep), it may become the value's own."""
        if not self.needed[value]:
            return
        if value in self.gradients:
            target = self.gradients[value].seen_as(d.shape)
            self.w.do(Operation.ADD, elementwise(d, target), by_block=by_block)
        elif keep or (d.block == 0 and not self._local(value)):
            self.gradients[value] = self._tensor(value)
            target = self.gradients[value].seen_as(d.shape)
            self.w.do(Operation.COPY, elementwise(d, target), by_block=by_block)
        else:
            self.gradients[value] = d

    def _back(self, step: Step, d: Tensor) -> None:
        w, stage, kind, x = self.w, step.stage, step.stage.kind, step.x[0]
        d = d.seen_as(stage.output)
        if isinstance(kind, Conv | Deconv):
            self._conv(step, kind, d)
            return
        if stage.relu and kind != SQUARE:
            w.do(Operation.RELU_BACK, elementwise(step.y, d), by_block=step.by_block)
        if isinstance(kind, Linear):
            self._linear(step, kind, d)
        elif kind == SQUARE:
            self._square(step, d)
        elif isinstance(kind, MaxPool | MeanPool):
            if self.needed[stage.inputs[0]]:
                target, known = self._into(stage.inputs[0], stage.input)
                back = Operation.WINDOW_MAX_BACK if isinstance(kind, MaxPool) else Operation.WINDOW_MEAN_BACK
                w.do(back, window(step, kind, target, d, accumulate=known), by_block=True)
        else:
            if isinstance(kind, Activation):
                w.do(BACK[kind.name], elementwise(step.y, d), by_block=step.by_block)
            elif isinstance(kind, Drop):
                drop(w, step, kind, d, d)
            elif isinstance(kind, Norm):
                w.do(Operation.NORM_BACK, norm(kind, x, d, self.norms[step.number]), by_block=False)
            elif isinstance(kind, Affine):
                rescale(w, kind.factors, [0.0] * len(kind.factors), d, d, by_block=step.by_block)
            elif isinstance(kind, Add):
                self._give(stage.inputs[1], d, step.by_block, keep=True)
            self._give(stage.inputs[0], d, step.by_block)

    def _square(self, step: Step, d: Tensor) -> None:
        value, shape = step.stage.inputs[0], step.stage.input
        if not self.needed[value]:
            return
        wider = self._tensor(value).seen_as(shape)
        if shape.rows % 2 or shape.columns % 2:  # a last row or column that nobody looked at
            self.w.do(
                Operation.ZERO, do.Zero(wider.place, wider.block, shape.features * wider.lanes), by_block=True
            )
        self.w.do(Operation.DELTA, self._delta(step, d, wider, -1), by_block=True)
        self._give(value, wider, True)

    def _delta(self, step: Step, d: Tensor, delta: Tensor, bias: int) -> do.Delta:
        y = step.y
        pooled = step.stage.pooled or step.stage.kind == SQUARE
        return do.Delta(
            **d.whole("d"),
            **y.by_channel("y"),
            marks=step.marks,
            marks_block=y.shape.features * y.lanes,
            **delta.by_channel("delta"),
            **vars(y.shape),
            pooled=int(pooled),
            relu=int(step.stage.relu),
            bias_gradient=bias,
            total=self.w.place(self.w.isa.lanes),
        )

    def _conv(self, step: Step, kind: Conv | Deconv, d: Tensor) -> None:
        w, stage, x = self.w, step.stage, step.x[0]
        value = stage.inputs[0]
        onwards = self.needed[value]
        if isinstance(kind, Deconv):
            margin = kind.padding[1]
        else:
            comb = Comb(kernel=kind.kernel[1], stride=kind.stride[1], padding=kind.padding[1])
            margin = comb.margin(stage.input.columns, stage.inner.columns) if onwards else 0
        updated = step.number in self.updated
        delta = w.tensor(stage.inner, margin=margin, shared=not updated)
        sums = self.sums.get(step.number, -1)
        bias = sums + summed(step, self.updated) if kind.bias is not None and sums >= 0 else -1
        w.do(Operation.DELTA, self._delta(step, d, delta, bias), by_block=True)
        if isinstance(kind, Deconv):
            weight_gradient(w, kind, x, delta, sums, rows=x.shape.rows, columns=x.shape.columns)
            if onwards:
                target, known = self._into(value, stage.input)
                conv = convolve(w, kind, delta, Target.of(target), accumulate=known)
                w.do(Operation.CONV, conv, by_block=True)
            return
        rows, columns = looked_at(stage)
        if self.squares is not None:
            conv_squares(w, kind, delta, x, self.squares, rows=rows, columns=columns)
        else:
            self._weights(step, kind, delta, sums)
        if not onwards:
            return
        target, known = self._into(value, stage.input)
        back = form_back(stage)
        if back is not None and step.number in self.fast_back:
            pads = (kind.kernel[0] - 1 - kind.padding[0], kind.kernel[1] - 1 - kind.padding[1])
            u, y = self.fast_back[step.number], Target.of(target)
            if u is None:
                convolve_whole(w, back, kind, delta, pads, y, flipped=True, accumulate=known)
            else:
                convolve_fast(w, back, delta, pads, u, y, accumulate=known)
        else:
            spread(w, kind, delta, target, rows=rows, columns=columns, accumulate=known)

    def _weights(self, step: Step, kind: Conv, delta: Tensor, sums: int) -> None:
        """The gradient by a convolution's weights."""
        w, x, (rows, columns) = self.w, step.x[0], looked_at(step.stage)
        form = form_of_stage(step.stage) if step.number in self.fast else None
        updated = step.number in self.updated
        if form is not None and updated:
            self.late.append((Operation.WHOLE_GRAD, weight_gradient_whole(w, form, kind, delta, x)))
        elif form is not None:
            total = weight_gradient_fast(w, form, kind, delta, x)._replace(gradient=sums)
            self.late.append((Operation.FAST_SUM, (total,)))
        elif updated:
            whole = weight_gradient_turned(w, kind, delta, x, rows=rows, columns=columns)
            self.late.append((Operation.TURNED_GRAD, (whole,)))
        else:
            weight_gradient(w, kind, delta, x, sums, rows=rows, columns=columns)

    def _linear(self, step: Step, kind: Linear, d: Tensor) -> None:
        w, x = self.w, step.x[0]
        value, inputs, outputs, lanes = step.stage.inputs[0], x.shape.features, d.shape.features, w.isa.lanes
        if self.needed[value]:
            target, known = self._into(value, step.stage.input)
            linear(w, d, target, kind.weight, (1, inputs), accumulate=known)
        if self.squares is not None:
            linear_squares(w, kind, d, x, self.squares)
            return
        vectors = -(-inputs // lanes)
        tile = best(w.isa, outputs, vectors)
        m_chunks = split(outputs, tile[0])
        tiles = max(1, TILE_BYTES // (4 * tile[0] * tile[1] * lanes))
        row = vectors * lanes + (lanes if vectors % 4 == 0 else 0)  # rows 2^k apart would share cache lines
        w.do(
            Operation.LINEAR_GRAD,
            do.LinearGrad(
                **x.whole("x"),
                **d.whole("d"),
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


def weights(step: Step) -> int:
    """How many weights a convolution has."""
    kind = step.stage.kind
    area = kind.kernel[0] * kind.kernel[1] if isinstance(kind, Conv | Deconv) else 1
    return step.stage.inner.channels * step.stage.input.channels * area


def summed(step: Step, updated: set[int]) -> int:
    """How many sums of its weights' gradient a convolution keeps: none where these are updated on the way."""
    return 0 if step.number in updated else weights(step)
