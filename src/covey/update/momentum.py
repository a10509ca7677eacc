"""Momentum at the server (FedFa; Huang et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from covey.core import Round
from covey.needs import Key
from covey.ranges import PartBelowOne
from covey.settings import validated
from covey.shows import NOTHING, Shows
from covey.steps.train import Train

Momentum = Literal["accelerate", "published"]

VELOCITY: Key[Tensor] = Key("momentum")


@validated
@dataclass(frozen=True, kw_only=True)
class ServerMomentum:
    """FedFa's momentum at the server, for every model.

    m <- gamma m + (1 - gamma)(w - new); w <- new - lr m, with the clients' learning rate of the round.

    w - new is the round's pseudo-gradient, so the model goes on in the direction of its past steps. The `published`
    code has new - w in its place: there the momentum brakes. Every model has its own momentum; one that nobody
    worked on stays.

    Args:
        gamma: momentum of clients and server.
        momentum: accelerate goes on along the smoothed step; published has the public code's sign, which brakes.
    """

    train: Train
    gamma: PartBelowOne = 0.9
    momentum: Momentum = "accelerate"

    shows: ClassVar[Shows] = NOTHING

    def __call__(self, now: Round, rows: Tensor) -> Tensor:
        trainable = now.fleet.layout.trainable
        count = len(now.models)
        gradient = now.models[:, :trainable] - rows[:count, :trainable]
        if self.momentum == "published":
            gradient = -gradient
        kept = VELOCITY.get(now.memory, gradient[:0])
        before = torch.cat([kept, torch.zeros_like(gradient[len(kept) :])])
        worked = (gradient != 0).any(dim=1)
        worked[[reply.slot for reply in now.replies]] = True
        velocity = torch.where(worked[:, None], self.gamma * before + (1 - self.gamma) * gradient, before)
        VELOCITY.keep(now.memory, velocity)
        new = rows.clone()
        new[:count][worked, :trainable] -= self.train.recipe(now.number).lr * velocity[worked]
        return new
