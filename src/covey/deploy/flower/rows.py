"""A foreign model: Flower's arrays as a row of the bank, and back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from covey.errors import UserError
from covey.streams import stream
from covey.training.rows import MOVED, Layout

STATISTICS = ("running_mean", "running_var")  # of BatchNorm: they are averaged, and nobody's gradient


@dataclass(frozen=True, kw_only=True, eq=False)
class RowForm:
    """Which array lies where in a row.

    Arrays that are no floating-point numbers (a count of batches) are in no row: everybody is sent them as they were
    given.
    """

    layout: Layout
    given: Mapping[str, Array]

    @classmethod
    def of(cls, arrays: ArrayRecord) -> Self:
        """The form of the arrays that a run begins with."""
        given = dict(arrays.items())
        floats = [name for name, array in given.items() if array.numpy().dtype.kind == "f"]
        if not floats:
            raise UserError("initial_arrays has no floating-point numbers: there is nothing to train")
        learned = [name for name in floats if name.split(".")[-1] not in STATISTICS]
        names = (*learned, *(name for name in floats if name not in learned))
        shapes = tuple(tuple(given[name].numpy().shape) for name in names)
        layout = Layout(
            names=names,
            shapes=shapes,
            trainable=sum(math.prod(shape) for shape in shapes[: len(learned)]),
            size=sum(math.prod(shape) for shape in shapes),
        )
        return cls(layout=layout, given=given)

    def row(self, arrays: ArrayRecord) -> Tensor:
        """The arrays as a row; a ValueError where they are others than the run began with."""
        if set(arrays) != set(self.given):
            raise ValueError(
                f"its arrays are {', '.join(arrays)}; the run began with {', '.join(self.given)}"
            )
        parts = []
        for name, shape in zip(self.layout.names, self.layout.shapes, strict=True):
            values = np.asarray(arrays[name].numpy())
            if values.shape != shape or values.dtype.kind != "f":
                raise ValueError(
                    f"its array {name} is {values.dtype} of {values.shape}, not floats of {shape}"
                )
            parts.append(values.astype(np.float32).reshape(-1))
        return torch.from_numpy(np.concatenate(parts))

    def arrays(self, row: Tensor) -> ArrayRecord:
        """A row as the arrays that a client takes: names, order, shapes and types as they were given."""
        made = self.layout.tensors(row)
        return ArrayRecord(
            {
                name: Array(made[name].numpy().astype(array.numpy().dtype)) if name in made else array
                for name, array in self.given.items()
            }
        )

    def start(self, seed: int, number: int) -> Tensor:
        """A row to start from: 0 is the one that was given.

        How to draw a foreign model anew is unknown: further ones have its values in another order within each array,
        moved a little, so that models of zeros differ, too.
        """
        given = self.row(ArrayRecord(dict(self.given)))
        if number == 0:
            return given
        rng = stream(seed, "start", number)
        for name, part in self.layout.tensors(given).items():
            if name.split(".")[-1] in STATISTICS:
                continue
            drawn = rng.permutation(part.numpy().reshape(-1)) + rng.normal(0, MOVED, part.numel())
            part.copy_(torch.from_numpy(drawn.astype(np.float32)).view_as(part))
        return given
