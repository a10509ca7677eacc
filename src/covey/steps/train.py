"""Local training: the one step that every method asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from covey.bench import Fit, Recipe
from covey.core import Client, Reply, Step, Task
from covey.errors import UserError
from covey.statistics import Known, Stat

if TYPE_CHECKING:
    from covey.data.types import View


# A round of very few batches learns next to nothing, and many epochs on few samples only fit these: measured with the
# default model of every data set (docs/data.md).
USUAL_BATCHES, MOST_EPOCHS = 50, 5


@dataclass(frozen=True, kw_only=True)
class Train(Step):
    """Some epochs of SGD or Adam on the client's own data, from the row it was sent (the best one, if several).

    `epochs` None suits them to the client: as many as make about 50 batches, from 1 to 5 (a client of 60 samples makes
    5 epochs, one of 1,500 makes 1). `batches` bounds the number of batches per round (None: all of `epochs`). The
    learning rate in round t is
    `lr * lr_decay^(t-1)`, never below `lr_floor * lr`. `holdout` is the share of the local data that is kept for
    validation. `keep_momentum` carries the momentum from one round to the next.
    """

    epochs: int | None = None
    batch: int = 16
    batches: int | None = None
    optimiser: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.05
    lr_decay: float = 1.0
    lr_floor: float = 0.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    clip: float | None = None
    holdout: float = 0.0
    keep_momentum: bool = False
    drop_last: bool = False

    kind: ClassVar[str] = "train.sgd"

    def __post_init__(self) -> None:
        if self.epochs is not None:
            _at_least("train.epochs", self.epochs, 1)
        _at_least("train.batch", self.batch, 1)
        if self.batches is not None:
            _at_least("train.batches", self.batches, 1)
        if self.optimiser not in ("sgd", "adam"):
            raise UserError(f"train.optimiser is {self.optimiser!r}; allowed: sgd, adam")
        if not self.lr > 0:
            raise UserError(f"train.lr is {self.lr!r}; it must be greater than 0")
        for name in ("momentum", "weight_decay", "prox", "lr_floor"):
            _at_least(f"train.{name}", getattr(self, name), 0)
        if self.clip is not None and not self.clip > 0:
            raise UserError(f"train.clip is {self.clip!r}; it must be greater than 0")
        if not 0 <= self.holdout < 1:
            raise UserError(f"train.holdout is {self.holdout!r}; allowed: from 0 to below 1")
        if not 0 < self.lr_decay <= 1:
            raise UserError(f"train.lr_decay is {self.lr_decay!r}; allowed: above 0 to 1")

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        fit = local_fit(self, client, start)
        return reply_of(client, fit, slot, size=len(self.training_part(client)))

    def cohort(self, clients: Sequence[Client], tasks: Sequence[Task]) -> list[Reply] | None:
        """The same for many clients at once, up to rounding; None where the model or the settings do not allow it."""
        bench, recipe = clients[0].bench, self.recipe(clients[0].round)
        if self.keep_momentum or not bench.fits_cohorts(recipe):
            return None
        found = [best_row(client, task) for client, task in zip(clients, tasks, strict=True)]
        data = [self.training_part(client).tensors() for client in clients]
        orders = [self.order(len(y), client.rng) for client, (_, y) in zip(clients, data, strict=True)]
        fits = bench.fit_cohort([row for _, row in found], data, orders, recipe)
        return [
            reply_of(client, fit, slot, size=len(y))
            for client, fit, (slot, _), (_, y) in zip(clients, fits, found, data, strict=True)
        ]

    def expects(self, known: Known) -> dict[str, Stat]:
        """The mean loss over the batches, and how many there were."""
        kept = known.train - validation_size(known.train, self.holdout)
        most = self.epochs_for(kept) * math.ceil(known.train / self.batch)
        most = most if self.batches is None else min(most, self.batches)
        return {"loss": Stat(low=known.lowest_loss), "batches": Stat(low=0, high=most, whole=True)}

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        """Samples that pass through training."""
        kept = train - validation_size(train, self.holdout)
        whole = self.epochs_for(kept) * kept
        return float(whole if self.batches is None else min(whole, self.batches * self.batch))

    def recipe(self, number: int) -> Recipe:
        """The update rule in round `number`."""
        return Recipe(
            optimiser=self.optimiser,
            lr=self.lr * max(self.lr_decay ** (number - 1), self.lr_floor),
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            prox=self.prox,
            clip=self.clip,
        )

    def epochs_for(self, samples: int) -> int:
        """The epochs of one local update on so many samples."""
        if self.epochs is not None:
            return self.epochs
        batches = max(1, math.ceil(samples / self.batch))
        return max(1, min(MOST_EPOCHS, round(USUAL_BATCHES / batches)))

    def order(self, samples: int, rng: np.random.Generator) -> list[np.ndarray]:
        """The batches of one local update: every epoch a new permutation, cut into batches."""
        cut: list[np.ndarray] = []
        for _ in range(self.epochs_for(samples)):
            shuffled = rng.permutation(samples)
            batches = [shuffled[i : i + self.batch] for i in range(0, samples, self.batch)]
            if self.drop_last and len(batches) > 1 and len(batches[-1]) < self.batch:
                batches.pop()
            cut += batches
            if self.batches is not None and len(cut) >= self.batches:
                return cut[: self.batches]
        return cut

    def training_part(self, client: Client) -> View:
        """The samples that are trained on: all but the validation part."""
        return client.train if not self.holdout else split(client, self.holdout)[0]


def as_set(train: Train) -> Train:
    """Some epochs of training as the table [train] says."""
    return train


def _at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise UserError(f"{name} is {value!r}; it must be at least {least}")


def validation_size(samples: int, holdout: float) -> int:
    """max(1, min(floor(holdout N), N - 1)): how many samples are kept for validation."""
    return max(1, min(int(holdout * samples), samples - 1)) if holdout and samples > 1 else 0


def split(client: Client, holdout: float) -> tuple[View, View]:
    """The client's training and validation part: after a shuffle that never changes, the last ones validate."""
    order = client.stream("holdout").permutation(len(client.train))
    cut = len(order) - validation_size(len(order), holdout)
    return client.train.select(np.sort(order[:cut])), client.train.select(np.sort(order[cut:]))


def best_row(client: Client, task: Task) -> tuple[int, Tensor]:
    """The row to work on, and its slot: of several, the one with the lowest loss on the client's training data."""
    if len(task.models) == 1:
        return task.slots[0], with_own_buffers(client, task.models[0])
    x, y = client.train.tensors()
    target = client.bench.objective.target(x, y)
    losses = []
    for row in task.models:
        outputs = client.bench.forward(with_own_buffers(client, row), x)
        losses.append(float(client.bench.objective.scores(outputs, target)["loss"].double().mean()))
    best = int(np.argmin(losses))
    return task.slots[best], with_own_buffers(client, task.models[best])


def with_own_buffers(client: Client, row: Tensor) -> Tensor:
    """Under the policy "local" a client's own float buffers take the place of those that came with the row."""
    layout = client.bench.layout
    own = client.state.get("buffers")
    if layout.buffers == "average" or own is None:
        return row
    return torch.cat([row[: layout.trainable], own])


def local_fit(train: Train, client: Client, start: Tensor, linear: Tensor | None = None) -> Fit:
    """Trains from `start` as the settings say; `linear` is added to every gradient. Keeps momentum and own buffers."""
    part = train.training_part(client)
    batches = train.order(len(part), client.rng)
    if train.batches is not None:
        part, batches = only_used(part, batches)
    x, y = part.tensors()
    fit = client.bench.fit(
        start,
        x,
        y,
        batches,
        train.recipe(client.round),
        seed=int(client.rng.integers(2**62)),
        linear=linear,
        velocity=client.state.get("velocity") if train.keep_momentum else None,
    )
    layout = client.bench.layout
    if train.keep_momentum and fit.velocity is not None:
        client.state["velocity"] = fit.velocity
    if layout.buffers == "local" and layout.has_buffers:
        client.state["buffers"] = fit.row[layout.trainable :].clone()
    return fit


def only_used(part: View, batches: Sequence[np.ndarray]) -> tuple[View, list[np.ndarray]]:
    """The samples that some batch holds, and the batches as places among these: nothing else needs to be gathered."""
    used = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *batches]))
    return part.select(used), [np.searchsorted(used, batch) for batch in batches]


def reply_of(client: Client, fit: Fit, slot: int, size: int) -> Reply:
    """The reply to a training task: the row, with the mean loss over the batches and their number."""
    loss = float(fit.losses.mean()) if len(fit.losses) else 0.0
    stats = {"loss": loss, "batches": len(fit.losses)}
    return Reply(id=client.id, vector=fit.row, slot=slot, size=size, stats=stats)
