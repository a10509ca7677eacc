"""Joins layers into the stages that one operation of the machine does."""

from dataclasses import dataclass, replace

from covey.lanes.layers import Activation, Chain, Conv, Copy, Drop, Kind, Layer, Linear, MaxPool, Shape

RELU = Activation(name="relu")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A layer, with the 2 x 2 maximum and the ReLU that follow it at once."""

    kind: Kind
    input: Shape
    inner: Shape  # before pooling
    output: Shape
    pooled: bool = False
    relu: bool = False


def _never_falls(kind: Kind) -> bool:
    """Functions that keep the order of the values of a channel: the maximum may be taken before them."""
    return isinstance(kind, Activation) or (isinstance(kind, Drop) and kind.channels)


def pool_early(layers: tuple[Layer, ...]) -> list[Layer]:
    """Max-pooling moved before the activations it follows, which then have a quarter of the work."""
    moved = list(layers)
    for i in range(len(moved)):
        j = i
        while j and isinstance(moved[j].kind, MaxPool) and _never_falls(moved[j - 1].kind):
            large, small = moved[j].input, moved[j].output
            moved[j - 1], moved[j] = (
                Layer(kind=moved[j].kind, input=large, output=small),
                Layer(kind=moved[j - 1].kind, input=small, output=small),
            )
            j -= 1
    return moved


def stages(chain: Chain) -> list[Stage]:
    found: list[Stage] = []
    for layer in pool_early(chain.layers):
        last = found[-1] if found else None
        if (
            last
            and isinstance(last.kind, Conv)
            and not last.pooled
            and not last.relu
            and layer.kind == MaxPool()
        ):
            found[-1] = replace(last, pooled=True, output=layer.output)
        elif last and isinstance(last.kind, Conv | Linear) and not last.relu and layer.kind == RELU:
            found[-1] = replace(last, relu=True)
        else:
            if last and last.output != layer.input and isinstance(layer.kind, Conv):
                found.append(Stage(kind=Copy(), input=layer.input, inner=layer.input, output=layer.input))
            found.append(Stage(kind=layer.kind, input=layer.input, inner=layer.output, output=layer.output))
    return found
