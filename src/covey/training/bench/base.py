"""What every bench can do: train a row on some batches, and run a row forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Required, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from covey.training.objective import Objective
from covey.training.rows import Layout

if TYPE_CHECKING:
    from covey.training.bench.clipping import Clipping
    from covey.training.bench.torch_bench import TorchBench

# The loss of a batch in a method's own words: the model, inputs, targets, and which samples these are.
LossFunction = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread: sums come out in the same order whatever the machine, and small models run no slower.

    A second one would spin between short operations and take time from whatever else runs on the machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a local update is made: `v <- v - lr (gradient + weight_decay v + prox (v - start) + linear)`."""

    optimiser: Any = "sgd"  # a name, or a table with its name and settings
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    clip: float | None = None
    accumulate: int = 1  # batches of one step
    precision: Precision = "float32"  # in which layers compute

    @property
    def plain(self) -> bool:
        """Whether every batch is a step in float32, which is all that faster trainers do."""
        return self.accumulate == 1 and self.precision == "float32"


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """The trained row, the mean loss of each batch before its update, and the momentum at the end."""

    row: Tensor
    losses: np.ndarray
    velocity: Tensor | None = None


class More(TypedDict, total=False):
    """What else a local update may be told."""

    seed: Required[int]  # of dropout
    linear: Tensor | None  # added to every gradient
    velocity: Tensor | None  # momentum to begin with
    loss_of: LossFunction | None  # in place of the objective's loss; PyTorch only
    seconds: float | None  # after which no further step begins; PyTorch only


Batches = Sequence[np.ndarray]
# rows, data and batches of many clients -> what `fit` gives for each; stacked, up to rounding
FitCohort = Callable[[Sequence[Tensor], Sequence[tuple[Tensor, Tensor]], Sequence[Batches]], list[Fit]]


class Bench(Protocol):
    """One model that any row can be loaded into."""

    layout: Layout
    objective: Objective

    def fit(
        self, row: Tensor, x: Tensor, y: Tensor, batches: Batches, recipe: Recipe, **more: Unpack[More]
    ) -> Fit:
        """Trains from `row` on the batches in order."""
        ...

    def fit_clipped(
        self, row: Tensor, x: Tensor, y: Tensor, batches: Batches, recipe: Recipe, clipping: Clipping
    ) -> Tensor:
        """Trains from `row` on sums of clipped gradients under noise; a batch may be empty. The trained row."""
        ...

    def cohort(self, recipe: Recipe) -> FitCohort | None:
        """What trains many clients: stacked, or laid out together and one after another; none where it cannot."""
        ...

    def forward(self, row: Tensor, x: Tensor) -> Tensor:
        """The outputs of the model with that row, in evaluation mode."""
        ...

    def on_torch(self) -> TorchBench:
        """The same model as PyTorch runs it, for methods with a loss of their own."""
        ...

    def info(self) -> dict[str, str | int]:
        """Which trainer this is and why, for the run folder."""
        ...
