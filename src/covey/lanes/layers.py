"""The layers that lanes can train: what the reader finds in a model and the planner turns into a program."""

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
class Conv:
    weight: int  # offset in the model's row
    bias: int | None
    kernel: tuple[int, int]
    padding: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Linear:
    weight: int
    bias: int | None


@dataclass(frozen=True, kw_only=True)
class Activation:
    name: Literal["relu", "tanh", "sigmoid"]


@dataclass(frozen=True, kw_only=True)
class MaxPool:
    """The largest of 2 x 2."""


@dataclass(frozen=True, kw_only=True)
class Drop:
    share: float
    channels: bool  # whole channels (Dropout2d)


@dataclass(frozen=True, kw_only=True)
class Copy:
    """The same values with zeros around them: where a vector becomes the padded image of a convolution."""


Kind: TypeAlias = Conv | Linear | Activation | MaxPool | Drop | Copy


@dataclass(frozen=True, kw_only=True)
class Layer:
    kind: Kind
    input: Shape
    output: Shape


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A model: layers that follow one another."""

    layers: tuple[Layer, ...]
    input: Shape
    output: Shape
    parameters: int


class UnsupportedError(Exception):
    """Why lanes cannot train a model, in a few words."""
