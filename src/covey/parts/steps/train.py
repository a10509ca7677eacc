"""Local training: the one step that every method asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from covey.core import NOTHING, Client, Known, Reply, Shows, Stat, Step, Task, part
from covey.data.augment import as_shown
from covey.data.together import fold_of
from covey.errors import UserError
from covey.settings import (
    Count,
    Natural,
    NotNegative,
    PartBelowOne,
    Positive,
    Range,
    Share,
    only_with,
    validated_in,
)
from covey.settings.registry import register
from covey.training.bench import Fit, LossFunction, Recipe
from covey.training.bench.base import Precision
from covey.training.bench.optimisers import OPTIMISER, check_optimiser

if TYPE_CHECKING:
    from covey.data.types import View


# A round of very few batches learns next to nothing, and many epochs on few samples only fit these: measured with the
# default model of every data set (docs/evidence/stored.md).
USUAL_BATCHES, MOST_EPOCHS = 50, 5
MOST_DECAY = 0.005  # more holds models of small clients back: half a point on 60 digits per client with 0.017
FOLDS_OF_UNITS = 1000  # how finely a share of all units is reported


@register("step")
@validated_in("train")
@dataclass(frozen=True, kw_only=True)  # said again for the pages of the API, which are made from the source
class Train(Step):
    """Some epochs of SGD or Adam on the client's own data, from the row it was sent (the best one, if several).

    The learning rate in round t is `lr * lr_decay^(t-1)`, never below `lr_floor * lr`; or it falls to that along half a
    cosine, `lr_floor + (1 - lr_floor) (1 + cos(pi (t - 1 - warmup) / (schedule_rounds - warmup))) / 2`.

    Args:
        epochs: over the local data; none: as many as make about 50 batches, from 1 to 5.
        batch: samples per batch.
        batches: the most batches of a round; none is all of the epochs.
        optimiser: sgd, adam, or your own such as torch.optim:AdamW; a table with its name and settings.
        lr: learning rate.
        lr_decay: factor on the learning rate in each round.
        lr_floor: share of lr below which it never falls.
        momentum: of SGD.
        weight_decay: L2 penalty on the weights; samples is 1 / samples of the client, at most 0.005.
        prox: strength that holds the model to the one that was sent (FedProx).
        clip: the longest gradient; none is no limit.
        holdout: share of the local data that is kept for validation.
        keep_momentum: whether the momentum is carried from one round to the next.
        drop_last: whether a last, smaller batch is left out.
        schedule: decay (by `lr_decay` in each round) or cosine (over `schedule_rounds` rounds).
        schedule_rounds: after this many rounds a cosine has come down to `lr_floor`.
        warmup: rounds in which the learning rate rises to lr, evenly.
        accumulate: batches whose gradients make one step together, as one large batch would.
        precision: float32, or bfloat16: layers compute in bfloat16; weights, losses and steps stay in float32.
        seconds: after this long on its device a client stops and sends what it has, at least one batch; none: never. A
            real site goes by its clock, and that run does not repeat bit by bit.

    Examples:
        >>> train = covey.Train(lr=0.05, batch=32, epochs=2, momentum=0.9)
    """

    epochs: Annotated[int, Range(1, 10_000)] | None = None
    batch: Count = 16
    batches: Count | None = None
    optimiser: Annotated[Any, OPTIMISER] = "sgd"
    lr: Positive = 0.05
    lr_decay: Annotated[float, Range(above=0, most=1)] = 1.0
    lr_floor: Share = 0.0
    momentum: PartBelowOne = 0.0
    weight_decay: NotNegative | Literal["samples"] = 0.0
    prox: NotNegative = 0.0
    clip: Positive | None = None
    holdout: PartBelowOne = 0.0
    keep_momentum: bool = False
    drop_last: bool = False
    schedule: Literal["decay", "cosine"] = "decay"
    schedule_rounds: Annotated[int, Range(2, 100_000_000)] | None = None
    warmup: Natural = 0
    accumulate: Count = 1
    precision: Precision = "float32"
    seconds: Positive | None = None

    kind: ClassVar[str] = "train.sgd"

    shows: ClassVar[Shows] = NOTHING

    def __post_init__(self) -> None:
        decay = MOST_DECAY if self.weight_decay == "samples" else self.weight_decay
        check_optimiser(self.optimiser, momentum=self.momentum, weight_decay=decay)
        falls = self.lr_decay < 1 or self.schedule == "cosine"
        only_with("train", self, "lr_floor", falls, 'train.lr_decay below 1 or train.schedule = "cosine"')
        only_with("train", self, "lr_decay", self.schedule == "decay", 'train.schedule = "decay"')
        only_with("train", self, "schedule_rounds", self.schedule == "cosine", 'train.schedule = "cosine"')
        if self.schedule == "cosine" and not (self.schedule_rounds or 0) > self.warmup:
            raise UserError(
                f"train.schedule_rounds is {self.schedule_rounds}; allowed with a cosine: more than train.warmup, "
                f"{self.warmup}"
            )
        carried = self.momentum > 0 and self.optimiser == "sgd"
        only_with("train", self, "keep_momentum", carried, 'train.momentum above 0 and optimiser = "sgd"')

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        fit = local_fit(self, client, start)
        return reply_of(client, fit, slot, size=len(self.training_part(client)))

    def cohort(self, clients: Sequence[Client], tasks: Sequence[Task]) -> list[Reply] | None:
        """The same for many clients, as their bench trains cohorts; None where model or settings do not allow it."""
        together = clients[0].bench.cohort(self.recipe(clients[0].round))
        by_samples = self.weight_decay == "samples"  # another one for each
        augmented = any(client.train.dataset.augment != "none" for client in clients)
        one_by_one = self.keep_momentum or augmented or by_samples or self.seconds is not None
        if one_by_one or together is None or type(self).__call__ is not Train.__call__:
            return None
        found = [best_row(client, task) for client, task in zip(clients, tasks, strict=True)]
        drawn = [self.drawn(client) for client in clients]
        data, batches = zip(*drawn, strict=True)
        fits = together([row for _, row in found], data, batches)
        return [
            reply_of(client, fit, slot, size=len(self.training_part(client)))
            for client, fit, (slot, _) in zip(clients, fits, found, strict=True)
        ]

    def drawn(self, client: Client) -> tuple[tuple[Tensor, Tensor], list[np.ndarray]]:
        """The inputs and labels that one local update is made on, and its batches as places among these."""
        part = self.training_part(client)
        batches = self.in_time(self.order(len(part), client.rng), client)
        if self.batches is not None:
            part, batches = only_used(part, batches)
        return part.tensors(), batches

    def expects(self, known: Known) -> dict[str, Stat]:
        """The mean loss over the batches, and how many there were."""
        # nobody else knows the size of a validation part where rows belong together
        kept = 1 if self.holdout else known.train
        most = self.epochs_for(kept) * math.ceil(known.train / self.batch)
        most = most if self.batches is None else min(most, self.batches)
        return {"loss": Stat(low=known.lowest_loss), "batches": Stat(low=0, high=most, whole=True)}

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        """Samples that pass through training."""
        kept = train - validation_size(train, self.holdout)
        whole = self.epochs_for(kept) * kept
        return float(whole if self.batches is None else min(whole, self.batches * self.batch))

    def recipe(self, number: int, samples: int = 1) -> Recipe:
        """The update rule in round `number` on that many samples."""
        return Recipe(
            optimiser=self.optimiser,
            lr=self.lr_in(number),
            momentum=self.momentum,
            weight_decay=self.decay_for(samples),
            prox=self.prox,
            clip=self.clip,
            accumulate=self.accumulate,
            precision=self.precision,
        )

    def lr_in(self, number: int) -> float:
        """The learning rate in round `number`."""
        share = max(self.lr_decay ** (number - 1), self.lr_floor)
        if self.schedule == "cosine":
            assert self.schedule_rounds is not None
            passed = (number - 1 - self.warmup) / (self.schedule_rounds - self.warmup)
            fallen = (1 + math.cos(math.pi * min(1.0, max(0.0, passed)))) / 2
            share = self.lr_floor + (1 - self.lr_floor) * fallen
        return self.lr * share * min(1.0, number / max(1, self.warmup))

    def settled(self) -> Train:
        """The same at the learning rate below which it never falls, from the first round on."""
        return replace(self, lr=self.lr * self.lr_floor, lr_decay=1.0, lr_floor=0.0)

    def in_time(self, batches: list[np.ndarray], client: Client) -> list[np.ndarray]:
        """The batches that a simulated device has the time for; a real one looks at its clock."""
        if self.seconds is None or client.pace is None:
            return batches
        passed = np.cumsum([len(batch) for batch in batches]) * client.pace
        return batches[: max(1, int((passed <= self.seconds).sum()))]

    def decay_for(self, samples: int) -> float:
        """The weight decay on that many samples; 1 / samples lets a normal prior weigh as much as one of them."""
        if self.weight_decay == "samples":
            return min(MOST_DECAY, 1 / max(1, samples))
        return float(self.weight_decay)

    def epochs_for(self, samples: int) -> int:
        """The epochs of one local update on that many samples."""
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


@dataclass(frozen=True, kw_only=True)
class AroundTraining(Step):
    """A step built around local training: it tells what training tells, and costs what training and `passes` cost."""

    train: Train

    def expects(self, known: Known) -> dict[str, Stat]:
        return self.train.expects(known)

    def work(self, train: int, test: int) -> float:
        return self.train.work(train, test) + self.passes * train


@part("local", "train")
def as_set(train: Train) -> Train:
    """Some epochs of training as the table [train] says."""
    return train


def validation_size(samples: int, holdout: float) -> int:
    """max(1, min(floor(holdout N), N - 1)): how many samples are kept for validation."""
    return max(1, min(int(holdout * samples), samples - 1)) if holdout and samples > 1 else 0


def split(client: Client, holdout: float) -> tuple[View, View]:
    """The client's training and validation part: after a shuffle that never changes, the last ones validate.

    Where rows belong together (`data.together`), whole units validate, the same ones at all clients.
    """
    folds = fold_of(client.train, FOLDS_OF_UNITS, client.seed, "holdout")
    if folds is not None:
        held = folds >= round((1 - holdout) * FOLDS_OF_UNITS)
        held &= not held.all()
        return client.train.select(np.flatnonzero(~held)), client.train.select(np.flatnonzero(held))
    order = client.stream("holdout").permutation(len(client.train))
    cut = len(order) - validation_size(len(order), holdout)
    return client.train.select(np.sort(order[:cut])), client.train.select(np.sort(order[cut:]))


def best_row(client: Client, task: Task) -> tuple[int, Tensor]:
    """The row to work on, and its slot: of several, the one with the lowest loss on the client's training data.

    The task's `choose_on` limits them to that many samples, drawn anew in every round.
    """
    if len(task.models) == 1:
        return task.slots[0], with_own_buffers(client, task.models[0])
    data = client.train
    if wanted := int(task.args.get("choose_on", 0)):
        drawn = client.stream("choose", "round", client.round).permutation(len(data))[:wanted]
        data = data.select(np.sort(drawn))
    x, y = data.tensors()
    target = client.bench.objective.target(x, y)
    losses = []
    for row in task.models:
        outputs = client.bench.forward(with_own_buffers(client, row), x)
        losses.append(float(client.bench.objective.scores(outputs, target)["loss"].double().mean()))
    best = int(np.argmin(losses))
    return task.slots[best], with_own_buffers(client, task.models[best])


def with_own_buffers(client: Client, row: Tensor) -> Tensor:
    """The row with what stays at home put in: tensors, and under the policy "local" the client's float buffers."""
    layout = client.bench.layout
    if home := client.state.get("home"):
        row = row.clone()
        for at, values in home.items():
            row[at : at + len(values)] = values
    own = client.state.get("buffers")
    if layout.buffers == "average" or own is None:
        return row
    return torch.cat([row[: layout.trainable], own])


def local_fit(
    train: Train,
    client: Client,
    start: Tensor,
    linear: Tensor | None = None,
    loss: Callable[[Tensor], LossFunction] | None = None,
) -> Fit:
    """Trains from `start` as the settings say; `linear` is added to every gradient. Keeps momentum and own buffers.

    `loss` makes, of the inputs that are trained on, a loss in place of the objective's; PyTorch then trains.
    """
    (x, y), batches = train.drawn(client)
    dataset = client.train.dataset
    if dataset.augment != "none":
        rng = client.stream("augment", "round", client.round)
        x, y, batches = as_shown(x, y, batches, rng, dataset.scale)
    trainer = client.bench.fit if loss is None else partial(client.bench.on_torch().fit, loss_of=loss(x))
    if train.seconds is not None and client.live:
        trainer = partial(
            client.bench.on_torch().fit, loss_of=None if loss is None else loss(x), seconds=train.seconds
        )
    fit = trainer(
        start,
        x,
        y,
        batches,
        train.recipe(client.round, len(y)),
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
