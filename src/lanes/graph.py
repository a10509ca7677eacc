"""The models that lanes can train, as a graph: what the reader finds and the planner turns into a program."""

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of one sample; a vector is channels with one row and one column."""

    channels: int
    rows: int = 1
    columns: int = 1

    @property
    def features(self) -> int:
        return self.channels * self.rows * self.columns


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """What a convolution has, whichever way it goes."""

    weight: int  # offset in the model's row
    bias: int | None
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]


class Conv(Convolution):
    """From the input to the output."""


class Deconv(Convolution):
    """A transposed convolution: forward, what the gradient by its input is of the convolution of that shape."""


@dataclass(frozen=True, kw_only=True)
class Linear:
    weight: int
    bias: int | None


@dataclass(frozen=True, kw_only=True)
class Norm:
    """Batch normalisation of channels; `mean` and `variance` are the running ones, in the row's buffers."""

    weight: int | None
    bias: int | None
    mean: int
    variance: int
    momentum: float
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Activation:
    name: Literal["relu", "tanh", "sigmoid"]


@dataclass(frozen=True, kw_only=True)
class MaxPool:
    kernel: tuple[int, int] = (2, 2)
    stride: tuple[int, int] = (2, 2)
    padding: tuple[int, int] = (0, 0)


@dataclass(frozen=True, kw_only=True)
class MeanPool:
    kernel: tuple[int, int]
    stride: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Drop:
    share: float
    channels: bool  # whole channels (Dropout2d)


@dataclass(frozen=True, kw_only=True)
class Affine:
    """factor * x + constant with fixed numbers, one pair for each channel."""

    factors: tuple[float, ...]
    constants: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Add:
    """The sum of two values."""


@dataclass(frozen=True, kw_only=True)
class Copy:
    """The same values in another place: where a vector becomes the padded image of a convolution."""


Kind: TypeAlias = Conv | Deconv | Linear | Norm | Activation | MaxPool | MeanPool | Drop | Affine | Add | Copy


@dataclass(frozen=True, kw_only=True)
class Node:
    """A layer; its inputs are numbers of values: 0 is the model's input, i + 1 what node i returns."""

    kind: Kind
    inputs: tuple[int, ...]
    input: Shape
    output: Shape


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A model: nodes in an order in which they can be computed; the last one's value is the model's output."""

    nodes: tuple[Node, ...]
    input: Shape
    output: Shape
    parameters: int  # trainable values at the start of the row
    size: int  # of the row: parameters and float buffers


class UnsupportedError(Exception):
    """Why lanes cannot train a model, in a few words."""
