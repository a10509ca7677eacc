"""Joins the layers of a graph into stages, each done by one or two operations of the machine."""

from collections import Counter
from dataclasses import dataclass, replace

from lanes.geometry import Comb
from lanes.graph import (
    Activation,
    Conv,
    Copy,
    Deconv,
    Drop,
    Graph,
    Kind,
    Linear,
    MaxPool,
    Node,
    Norm,
    Shape,
)

RELU = Activation(name="relu")
SQUARE = MaxPool()  # 2 x 2, which convolutions do at once


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A layer, with the 2 x 2 maximum and the ReLU that follow it at once; inputs are numbers of values."""

    kind: Kind
    inputs: tuple[int, ...]
    input: Shape
    inner: Shape  # before pooling
    output: Shape
    pooled: bool = False
    relu: bool = False


def looked_at(stage: Stage) -> tuple[int, int]:
    """Rows and columns of a layer's output that matter: the last one of an odd number falls out of 2 x 2 maxima."""
    if stage.pooled:
        return 2 * stage.output.rows, 2 * stage.output.columns
    return stage.inner.rows, stage.inner.columns


def stages(graph: Graph) -> list[Stage]:
    """Stage i returns value i + 1."""
    return _with_copies(_joined(_pool_early(list(graph.nodes))), graph.input)


def _single_user(nodes: list[Node], value: int) -> bool:
    return sum(node.inputs.count(value) for node in nodes) == 1


def _never_falls(kind: Kind) -> bool:
    """Functions that keep the order of the values of a channel: the maximum may be taken before them."""
    return isinstance(kind, Activation) or (isinstance(kind, Drop) and kind.channels)


def _pool_early(nodes: list[Node]) -> list[Node]:
    """2 x 2 maxima moved before the activations they follow, which then have a quarter of the work."""
    for start in range(len(nodes)):
        pool = start
        while nodes[pool].kind == SQUARE and nodes[pool].inputs[0] > 0:
            before = nodes[pool].inputs[0] - 1
            alone = _single_user(nodes, before + 1) and nodes[before].output == nodes[pool].input
            if not alone or not _never_falls(nodes[before].kind):
                break
            large, small = nodes[pool].input, nodes[pool].output
            nodes[pool] = replace(nodes[pool], kind=nodes[before].kind, input=small)
            nodes[before] = replace(nodes[before], kind=SQUARE, input=large, output=small)
            pool = before
    return nodes


def _joined(nodes: list[Node]) -> list[Stage]:
    found: list[Stage] = []
    number = {0: 0}  # of each value among the stages
    for i, node in enumerate(nodes):
        inputs = tuple(number[value] for value in node.inputs)
        last = found[inputs[0] - 1] if inputs[0] else None
        alone = last is not None and _single_user(nodes, node.inputs[0]) and last.output == node.input
        if (
            last
            and alone
            and node.kind == SQUARE
            and isinstance(last.kind, Conv)
            and not last.relu
            and not last.pooled
        ):
            found[inputs[0] - 1] = replace(last, pooled=True, output=node.output)
            number[i + 1] = inputs[0]
        elif last and alone and node.kind == RELU and _takes_relu(last):
            found[inputs[0] - 1] = replace(last, relu=True)
            number[i + 1] = inputs[0]
        else:
            stage = Stage(
                kind=node.kind, inputs=inputs, input=node.input, inner=node.output, output=node.output
            )
            found.append(stage)
            number[i + 1] = len(found)
    return found


def _takes_relu(stage: Stage) -> bool:
    return (isinstance(stage.kind, Conv | Deconv | Linear) and not stage.relu) or stage.kind == SQUARE


def margin_needed(stage: Stage) -> int:
    """Columns of zeros that a stage wants at both sides of its input."""
    kind = stage.kind
    if isinstance(kind, Conv):
        return kind.padding[1]
    if isinstance(kind, Deconv):
        comb = Comb(kernel=kind.kernel[1], stride=kind.stride[1], padding=kind.padding[1])
        return comb.margin(stage.output.columns, stage.input.columns)
    return 0


def _with_copies(found: list[Stage], first: Shape) -> list[Stage]:
    """Copies where a value has to be flat for one stage and to have margins for another."""
    outputs = [first, *(stage.output for stage in found)]
    flat = Counter(
        value
        for stage in found
        for value in stage.inputs
        if isinstance(stage.kind, Linear) or outputs[value] != stage.input
    )
    flat[len(found)] += 1  # the model's output
    result: list[Stage] = []
    number = {0: 0}
    for i, stage in enumerate(found):
        inputs = tuple(number[value] for value in stage.inputs)
        if margin_needed(stage) and flat[stage.inputs[0]]:
            image = stage.input
            result.append(Stage(kind=Copy(), inputs=inputs, input=image, inner=image, output=image))
            inputs = (len(result),)
        result.append(replace(stage, inputs=inputs))
        number[i + 1] = len(result)
    return result


def has_parameters(stage: Stage) -> bool:
    return isinstance(stage.kind, Conv | Deconv | Linear | Norm)
