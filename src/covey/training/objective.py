"""What a model is trained for: the loss, and the scores that are reported of it."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.errors import UserError
from covey.settings.catalogue import OBJECTIVES
from covey.settings.registry import register

# of float32: what a client computed cannot be larger, and squares of it are finite
LARGEST = 3.4028234663852886e38

PADDING = 0  # the token behind the end of a text
NOBODY = -100  # the target of a place that does not count, as in Hugging Face's batches

NEEDED = ("kernel", "main", "higher_is_better", "target", "loss", "scores")


@runtime_checkable
class Objective(Protocol):
    """What a model is trained for: any object with these attributes.

    `kernel` is the name under which an accelerator knows the loss ("" when none does), `main` the metric that tables
    show, `target` what the outputs are compared with, `loss` a number per batch, and `scores` one value per sample
    under each metric's name. An objective of your own in which a sample's loss depends on the others says
    `mixes_samples = True`: no noise on samples' gradients hides one of them then.

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


def mixes_samples(objective: Objective) -> bool:
    """Whether what a sample costs depends on the others: such samples are scored client by client, never apart."""
    return bool(getattr(objective, "mixes_samples", False))


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


@register("objective", "next-token")
@dataclass(frozen=True)
class NextToken(Classification):
    """Cross-entropy of the next token at every place of a text: of the place after x_1 ... x_t it is x_{t+1}, of the
    last one the label.

    Padding (token 0) is never a target. The loss of a batch is the mean over its tokens; a sample's score is the mean
    over its own.
    """

    kernel: ClassVar[str] = ""

    def target(self, x: Tensor, y: Tensor) -> Tensor:
        if x.is_floating_point() or x.dim() != 2:
            raise UserError(
                f'objective is "next-token", and samples are {x.dtype} of shape {tuple(x.shape[1:])}; it needs tokens: '
                "whole numbers, one text per sample"
            )
        last = (x != PADDING).sum(1, keepdim=True) - 1
        follows = torch.cat([x[:, 1:], torch.full_like(x[:, :1], PADDING)], 1)
        follows = follows.scatter(1, last.clamp(min=0), y[:, None])
        return follows.masked_fill(x == PADDING, NOBODY)

    def scores(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        counts = target != NOBODY
        many = counts.sum(1).clamp(min=1)
        losses = F.cross_entropy(outputs, target, reduction="none", ignore_index=NOBODY).sum(1) / many
        hits = ((outputs.argmax(1) == target) & counts).sum(1) / many
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
