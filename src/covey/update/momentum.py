"""Momentum at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from covey.core import Round
from covey.steps import Train

Momentum = Literal["accelerate", "published"]


@dataclass(frozen=True, kw_only=True)
class ServerMomentum:
    """m <- gamma m + (1 - gamma)(w - new); w <- new - lr m, with the clients' learning rate of the round.

    w - new is the round's pseudo-gradient, so the model goes on in the direction of its past steps. The `published`
    code has new - w in its place: there the momentum brakes.
    """

    gamma: float
    train: Train
    momentum: Momentum = "accelerate"

    def __call__(self, now: Round, rows: Tensor) -> Tensor:
        trainable = now.fleet.layout.trainable
        gradient = now.models[:1, :trainable] - rows[:1, :trainable]
        if self.momentum == "published":
            gradient = -gradient
        before = now.memory.get("momentum", torch.zeros_like(gradient))
        now.memory["momentum"] = self.gamma * before + (1 - self.gamma) * gradient
        new = rows.clone()
        new[:1, :trainable] -= self.train.recipe(now.number).lr * now.memory["momentum"]
        return new
