"""The update rules of local training: SGD on the flat parameters, and whatever `torch.optim` or a user brings."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from covey.errors import UserError
from covey.settings.catalogue import OPTIMISERS
from covey.settings.choices import OneOf
from covey.settings.own_code import one_sentence
from covey.settings.registry import register
from covey.training.bench.base import Recipe

# What [train] says of every optimiser; all else that its maker takes are settings of its own.
OPTIMISER = OneOf(OPTIMISERS, given=("params", "parameters", "lr", "momentum", "weight_decay"))


@register("optimiser", "sgd")
def sgd(
    params: Iterable[Tensor], *, lr: float, momentum: float = 0.0, weight_decay: float = 0.0
) -> torch.optim.SGD:
    """Steps along the gradient, with momentum where [train] says so."""
    return torch.optim.SGD(params, lr=lr, momentum=momentum, weight_decay=weight_decay)


@register("optimiser", "adam")
def adam(params: Iterable[Tensor], *, lr: float, weight_decay: float = 0.0) -> torch.optim.Adam:
    """Adam with its usual moments."""
    return torch.optim.Adam(params, lr=lr, weight_decay=weight_decay)


def check_optimiser(optimiser: Any, **settings: float) -> None:
    """Refuses momentum and weight decay for an optimiser that takes none."""
    for name, value in settings.items():
        if value and optimiser != "sgd" and name not in _taken(optimiser):
            called = optimiser if isinstance(optimiser, str) else optimiser["name"]
            raise UserError(
                f"train.{name} is {value:g}, which optimiser {called!r} does not take; allowed: 0"
            )


def _taken(optimiser: Any) -> set[str]:
    return set(inspect.signature(OPTIMISER.made("train.optimiser", optimiser)).parameters)


def rule_for(parameters: Tensor, recipe: Recipe, velocity: Tensor | None) -> Sgd | TorchRule:
    """What makes the steps of one local update on the flat parameters."""
    return Sgd(parameters, recipe, velocity) if recipe.optimiser == "sgd" else TorchRule(parameters, recipe)


class Sgd:
    """`torch.optim.SGD` on the flat parameters: v <- momentum v + g + weight_decay w; w <- w - lr v."""

    def __init__(self, parameters: Tensor, recipe: Recipe, velocity: Tensor | None) -> None:
        self.parameters = parameters
        self.recipe = recipe
        self.velocity = velocity.clone() if velocity is not None else None

    def __call__(self, gradient: Tensor) -> None:
        with torch.no_grad():
            if self.recipe.weight_decay:
                gradient.add_(self.parameters, alpha=self.recipe.weight_decay)
            if self.recipe.momentum:
                if self.velocity is None:
                    self.velocity = gradient.clone()
                else:
                    self.velocity.mul_(self.recipe.momentum).add_(gradient)
                gradient = self.velocity
            self.parameters.add_(gradient, alpha=-self.recipe.lr)


class TorchRule:
    """Any `torch.optim.Optimizer` on the flat parameters, which begins anew with every local update."""

    velocity: None = None

    def __init__(self, parameters: Tensor, recipe: Recipe) -> None:
        weights = nn.Parameter(parameters)  # shares memory with the model
        self.weights = weights
        make = OPTIMISER.made("train.optimiser", recipe.optimiser)
        taken = _taken(recipe.optimiser)
        common = {"momentum": recipe.momentum, "weight_decay": recipe.weight_decay}
        with one_sentence(f"optimiser {recipe.optimiser!r}"):
            self.optimiser = make(
                [weights], lr=recipe.lr, **{name: value for name, value in common.items() if name in taken}
            )

    def __call__(self, gradient: Tensor) -> None:
        self.weights.grad = gradient
        self.optimiser.step()
