"""Local training one batch at a time, for methods that do something between two batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.core import Client, Reply
from covey.errors import UserError
from covey.parts.steps.train import AroundTraining, Train
from covey.training.bench import Bench, LossFunction, Recipe


def check_plain(train: Train, who: str) -> None:
    """Only plain steps v <- v - lr g can be taken one by one: nothing may be remembered from batch to batch."""
    if train.accumulate > 1:
        raise UserError(
            f"{who} takes a step with every batch: train.accumulate is {train.accumulate}; allowed: 1"
        )
    if train.optimiser != "sgd" or train.momentum:
        raise UserError(f"{who} takes plain steps: set train.optimiser = sgd, train.momentum = 0")


@dataclass(frozen=True, kw_only=True)
class PlainTraining(AroundTraining):
    """A step that takes plain steps one by one, on behalf of the method `of`."""

    of: ClassVar[str]

    def __post_init__(self) -> None:
        check_plain(self.train, self.of)


@dataclass(kw_only=True, eq=False)
class LocalBatches:
    """The batches of one local update, and a plain gradient step on any of them from any row."""

    bench: Bench
    x: Tensor
    y: Tensor
    order: list[np.ndarray]
    recipe: Recipe
    rng: np.random.Generator
    losses: list[float] = field(default_factory=list)

    @staticmethod
    def of(train: Train, client: Client) -> LocalBatches:
        """The batches that `train` would draw for the client in this round."""
        part = train.training_part(client)
        order = train.in_time(train.order(len(part), client.rng), client)
        x, y = part.tensors()
        recipe = replace(train.recipe(client.round, len(train.training_part(client))), prox=0.0)
        return LocalBatches(bench=client.bench, x=x, y=y, order=order, recipe=recipe, rng=client.rng)

    def step(
        self,
        row: Tensor,
        batch: np.ndarray,
        *,
        linear: Tensor | None = None,
        loss: LossFunction | None = None,
    ) -> Tensor:
        """v - lr (gradient at v on the batch + linear); of `loss` in place of the objective's, where one is given."""
        bench, seed = self.bench if loss is None else self.bench.on_torch(), int(self.rng.integers(2**62))
        fit = bench.fit(row, self.x, self.y, [batch], self.recipe, seed=seed, linear=linear, loss_of=loss)
        self.losses.append(float(fit.losses[0]))
        return fit.row

    def gradient(self, row: Tensor, batch: np.ndarray) -> Tensor:
        """The gradient at v on the batch, of the trainable part, as a plain step shows it."""
        trainable = self.bench.layout.trainable
        return (row - self.step(row, batch))[:trainable] / self.recipe.lr

    def reply(self, client: Client, row: Tensor, slot: int) -> Reply:
        """The reply to a training task: the row, with the mean loss over all steps and the number of batches."""
        loss = float(np.mean(self.losses)) if self.losses else 0.0
        stats = {"loss": loss, "batches": len(self.order)}
        return Reply(id=client.id, vector=row, slot=slot, size=len(self.y), stats=stats)

    def everything(self) -> np.ndarray:
        """All samples as one batch."""
        return np.arange(len(self.y))


def pairs(order: list[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Two batches at a time; a last single one is paired with itself."""
    for first in range(0, len(order), 2):
        yield order[first], order[min(first + 1, len(order) - 1)]


def is_finite(*rows: Tensor) -> bool:
    """Whether a client may keep these: a broken row is refused by the server and must not be remembered."""
    return all(bool(torch.isfinite(row).all()) for row in rows)
