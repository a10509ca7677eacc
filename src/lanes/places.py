"""Gives the values of a model their places in the workspace."""

from collections.abc import Container
from dataclasses import dataclass

from lanes.graph import Activation, Affine, Conv, Deconv, Drop, MaxPool, MeanPool, Norm, Shape
from lanes.stages import RELU, SQUARE, Stage, margin_needed
from lanes.workspace import Tensor, Writer


@dataclass(frozen=True, kw_only=True)
class Step:
    """A stage with the places of its values."""

    stage: Stage
    x: tuple[Tensor, ...]
    y: Tensor
    marks: int
    number: int
    by_block: bool


def works_by_block(stage: Stage, training: bool) -> bool:
    """Images go through the layers block after block, still in the cache; vectors all at once.

    Batch normalisation has to see the whole batch when it trains.
    """
    if isinstance(stage.kind, Norm) and training:
        return False
    spatial = isinstance(stage.kind, Conv | Deconv | MaxPool | MeanPool)
    return spatial or stage.inner.rows * stage.inner.columns > 1


def place_values(
    w: Writer, found: list[Stage], first: Shape, training: bool, whole: Container[int] = ()
) -> list[Step]:
    """Every value gets its tensor; stages that may overwrite their input do; `whole`: all blocks are done at once."""
    users = [[i for i, stage in enumerate(found) if value in stage.inputs] for value in range(len(found) + 1)]
    owner = list(range(len(found) + 1))  # the value in whose tensor a value lives
    for i, stage in enumerate(found):
        value = stage.inputs[0]
        if len(users[value]) == 1 and stage.inputs.count(value) == 1 and _overwrites(found, i, training):
            owner[i + 1] = owner[value]
    by_block = [works_by_block(stage, training) and i not in whole for i, stage in enumerate(found)]
    tensors: dict[int, Tensor] = {}
    for root in sorted(set(owner)):
        family = [value for value in range(len(found) + 1) if owner[value] == root]
        readers = [i for value in family for i in users[value]]
        margin = max((margin_needed(found[i]) for i in readers), default=0)
        last = max(readers, default=len(found))
        # In training, values wait for the way back; forward, one block's room serves all if nothing waits for it.
        shared = not training and last < len(found) and all(by_block[max(0, root - 1) : last + 1])
        shape = found[root - 1].output if root else first
        tensors[root] = w.tensor(shape, margin=margin, shared=shared and len(found) not in family)
    steps = []
    for i, stage in enumerate(found):
        y = tensors[owner[i + 1]].seen_as(stage.output)
        pooled = stage.pooled or isinstance(stage.kind, MaxPool)
        steps.append(
            Step(
                stage=stage,
                x=tuple(tensors[owner[value]].seen_as(stage.input) for value in stage.inputs),
                y=y,
                marks=w.byte_place(stage.output.features * w.isa.lanes * w.blocks) if pooled else 0,
                number=i,
                by_block=by_block[i],
            )
        )
    return steps


def _overwrites(found: list[Stage], i: int, training: bool) -> bool:
    """Whether stage i may write its output over its first input, as far as the stage before it is concerned."""
    stage, value = found[i], found[i].inputs[0]
    if not isinstance(stage.kind, Activation | Drop | Affine) and (
        training or not isinstance(stage.kind, Norm)
    ):
        return False
    if value == 0:
        return True
    before = found[value - 1]
    if before.output != stage.input:
        return False
    if not training:
        return True
    if isinstance(before.kind, Activation) and before.kind != RELU:
        return False  # its way back needs what it returned
    positive = before.kind == RELU or (before.relu and not before.pooled and before.kind != SQUARE)
    return isinstance(stage.kind, Drop) or not positive  # dropout keeps what is positive
