"""What a model is trained for: the loss, and the scores that are reported of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch.nn.functional as F
from torch import Tensor

from covey.errors import UserError
from covey.settings.catalogue import OBJECTIVES
from covey.settings.registry import register

# of float32: what a client computed cannot be larger, and squares of it are finite
LARGEST = 3.4028234663852886e38

NEEDED = ("kernel", "main", "higher_is_better", "target", "loss", "scores")


@runtime_checkable
class Objective(Protocol):
    """What a model is trained for: any object with these attributes.

    `kernel` is the name under which an accelerator knows the loss ("" when none does), `main` the metric that tables
    show, `target` what the outputs are compared with, `loss` a number per batch, and `scores` one value per sample
    under each metric's name.

    Examples:
        >>> from covey.training.objective import Regression
        >>> isinstance(Regression(), covey.Objective)
        True
    """

    kernel: ClassVar[str]  # the name under which an accelerator knows the loss; "" when none does
    main: ClassVar[str]  # the metric that tables and progress lines show
    higher_is_better: ClassVar[bool]

    def target(self, x: Tensor, y: Tensor) -> Tensor: ...
    def loss(self, outputs: Tensor, target: Tensor) -> Tensor: ...
    def scores(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]: ...


@register("objective", "classification")
@dataclass(frozen=True)
class Classification:
    """Cross-entropy on logits; accuracy."""

    kernel: ClassVar[str] = "cross-entropy"
    main: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True
    told: ClassVar[tuple[str, ...]] = ("accuracy", "loss")

    def target(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002
        return y

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(outputs, target)

    def scores(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        losses = F.cross_entropy(outputs, target, reduction="none")
        hits = (outputs.argmax(1) == target).float()
        if losses.dim() > 1:  # one label per position (text): a sample's score is the mean over its positions
            losses, hits = losses.flatten(1).mean(1), hits.flatten(1).mean(1)
        return {"accuracy": hits, "loss": losses}


@register("objective", "regression")
@dataclass(frozen=True)
class Regression:
    """Mean squared error on real targets; mse and mae."""

    kernel: ClassVar[str] = "mse"
    main: ClassVar[str] = "mse"
    higher_is_better: ClassVar[bool] = False
    told: ClassVar[tuple[str, ...]] = ("mse", "mae", "loss")

    def target(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002
        return y

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(outputs, target.view_as(outputs))

    def scores(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        error = (
            (outputs - target.view_as(outputs)).flatten(1)
            if outputs.dim() > 1
            else (outputs - target)[:, None]
        )
        squared = error.square().mean(1)
        return {"mse": squared, "mae": error.abs().mean(1), "loss": squared}


@register("objective", "reconstruction")
@dataclass(frozen=True)
class Reconstruction(Regression):
    """Mean squared error between what goes in and what comes out (autoencoders)."""

    def target(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002
        return x


def lowest_loss(objective: Objective) -> float:
    """What no loss of the objective falls below: 0, up to rounding, for those above; of your own nothing is known."""
    return -1e-6 if objective.kernel else -LARGEST


def objective_named(name: object, where: str = "") -> Objective:
    """The objective of that name; your own may be a class without settings or an instance."""
    found: Any = OBJECTIVES.find(name, where)
    made = found() if callable(found) else found
    if not isinstance(made, Objective):
        raise UserError(f"objective {name!r} is a {type(made).__name__}; it must have {', '.join(NEEDED)}")
    return made
