"""Writes the program that trains a model, or only runs it forward."""

from typing import Literal

from lanes.backward import Backward, summed
from lanes.compiled import instructions as do
from lanes.compiled.isa import Isa
from lanes.compiled.operations import Operation
from lanes.forward import forward, gather
from lanes.graph import Conv, Deconv, Graph, Norm
from lanes.places import Step, place_values
from lanes.samples import tell_lengths, weigh, zero_squares
from lanes.stages import stages
from lanes.turned import suits
from lanes.winograd import form_back, form_of_stage, is_large, transformed_weights
from lanes.workspace import Program, Tensor, Writer

Mode = Literal["cross-entropy", "mse", "forward"]
# how samples count; lengths: of their gradients, and no step is made
Each = Literal["alike", "weighted", "lengths"]


def write(
    graph: Graph,
    isa: Isa,
    blocks: int,
    mode: Mode,
    each: Each = "alike",
    fast: frozenset[int] = frozenset(),
) -> Program:
    """The program for batches of up to `blocks` times `isa.lanes` samples; stages in `fast` by Winograd's method."""
    w = Writer(isa=isa, blocks=blocks)
    training = mode != "forward"
    found = stages(graph)
    fast = frozenset(i for i in fast if each == "alike" and form_of_stage(found[i]) is not None)
    whole = {i for i in fast if is_large(found[i])}
    steps = place_values(w, found, graph.input, training, whole)
    squares = zero_squares(w) if each == "lengths" else None
    updated = whole | {step.number for step in steps if suits(step.stage) and step.number not in fast}
    sums = _zero_sums(w, steps, updated) if training and squares is None else {}
    norms = {
        step.number: w.place(2 * (step.stage.input.channels + isa.lanes))
        for step in steps
        if training and isinstance(step.stage.kind, Norm)
    }
    back = Backward(w, steps, norms, sums, squares) if training else None
    if back is not None and squares is None:
        back.updated |= updated
    transformed = _transformed(w, steps, fast, back)
    first = next(
        x for step in steps for value, x in zip(step.stage.inputs, step.x, strict=True) if value == 0
    )
    gather(w, first.seen_as(graph.input), by_block=steps[0].by_block)
    for step in steps:
        forward(w, step, norms, training, transformed)
    if back is not None:
        start = back.start()
        _loss(w, mode, steps[-1].y, start)
        if each == "weighted":
            weigh(w, start)
        back.run()
        if squares is not None:
            tell_lengths(w, squares)
            return w.finish()
        for operation, fields in back.late:
            w.do(operation, *fields, by_block=False)
        for number, place in sums.items():
            _finish(w, steps[number], place, updated)
        w.do(Operation.FINISH_ALL, by_block=False)
    else:
        y = steps[-1].y
        scatter = do.Scatter(y.place, y.block, y.shape.features, w.lane_places())
        w.do(Operation.SCATTER, scatter, by_block=False)
    return w.finish()


def _transformed(
    w: Writer, steps: list[Step], fast: frozenset[int], back: Backward | None
) -> dict[int, int | None]:
    """The weights of Winograd convolutions, transformed once per batch: for the way forward, and (in `back`) for it.

    Large ones have no place: they are transformed part after part when they are used.
    """
    found: dict[int, int | None] = {}
    for step in steps:
        kind, form = step.stage.kind, form_of_stage(step.stage)
        if step.number not in fast or not isinstance(kind, Conv) or form is None:
            continue
        outputs, inputs, large = step.stage.inner.channels, step.stage.input.channels, is_large(step.stage)
        found[step.number] = (
            None if large else transformed_weights(w, kind, form, outputs, inputs, flipped=False)
        )
        if back is not None:
            back.fast.add(step.number)
            onwards = form_back(step.stage)
            if onwards is not None and back.needed[step.stage.inputs[0]]:
                back.fast_back[step.number] = (
                    None if large else transformed_weights(w, kind, onwards, outputs, inputs, flipped=True)
                )
    return found


def _zero_sums(w: Writer, steps: list[Step], updated: set[int]) -> dict[int, int]:
    """Convolutions add up their gradient block after block: room for weight and bias, zero at the start.

    Not for the weights of those that are `updated` on the way.
    """
    found = {}
    for step in steps:
        if isinstance(step.stage.kind, Conv | Deconv):
            size = summed(step, updated) + step.stage.inner.channels
            found[step.number] = w.place(size)
            w.do(Operation.ZERO, do.Zero(found[step.number], 0, size), by_block=False)
    return found


def _loss(w: Writer, mode: Mode, y: Tensor, d: Tensor) -> None:
    w.do(
        Operation.CROSS_ENTROPY if mode == "cross-entropy" else Operation.SQUARED_ERROR,
        do.Loss(
            **y.whole("x"),
            **d.whole("d"),
            features=y.shape.features,
            scratch=w.place(w.isa.lanes**2),
            places=w.lane_places(),
        ),
        by_block=False,
    )


def _finish(w: Writer, step: Step, place: int, updated: set[int]) -> None:
    kind, size = step.stage.kind, summed(step, updated)
    if isinstance(kind, Conv | Deconv):
        if size:
            w.do(Operation.FINISH, do.Finish(place, kind.weight, size), by_block=False)
        if kind.bias is not None:
            bias = do.Finish(place + size, kind.bias, step.stage.inner.channels)
            w.do(Operation.FINISH, bias, by_block=False)
