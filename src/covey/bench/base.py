"""What every bench can do: train a row on some batches, and run a row forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from torch import Tensor, nn

from covey.model import Layout
from covey.objective import Objective

if TYPE_CHECKING:
    from covey.bench.torch_bench import TorchBench

# The loss of a batch in a method's own words: the model, inputs, targets, and which samples these are.
Loss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a local update is made: `v <- v - lr (gradient + weight_decay v + prox (v - start) + linear)`."""

    optimiser: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    clip: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """The trained row, the mean loss of each batch before its update, and the momentum at the end."""

    row: Tensor
    losses: np.ndarray
    velocity: Tensor | None = None


class Bench(Protocol):
    """One model that any row can be loaded into."""

    layout: Layout
    objective: Objective

    def fit(
        self,
        row: Tensor,
        x: Tensor,
        y: Tensor,
        batches: Sequence[np.ndarray],
        recipe: Recipe,
        *,
        seed: int,
        linear: Tensor | None = None,
        velocity: Tensor | None = None,
    ) -> Fit:
        """Trains from `row` on the batches in order; `linear` is added to every gradient; `seed` is for dropout."""
        ...

    def fits_cohorts(self, recipe: Recipe) -> bool:
        """Whether it can train many clients at once with stacked parameters."""
        ...

    def fit_cohort(
        self,
        rows: Sequence[Tensor],
        data: Sequence[tuple[Tensor, Tensor]],
        batches: Sequence[Sequence[np.ndarray]],
        recipe: Recipe,
    ) -> list[Fit]:
        """What `fit` gives for each client, up to rounding."""
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
