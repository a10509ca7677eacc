"""Evaluation: how good is a row on a client's data?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from covey.core import SHARE, Client, Known, Reply, Stat, Step, Task, step
from covey.parts.steps.served import Serving, served_row
from covey.parts.steps.train import split
from covey.settings import Range
from covey.training.metrics import Metric

if TYPE_CHECKING:
    from covey.data.types import View

A_SHARE, AN_ERROR = replace(SHARE, optional=True), Stat(low=0.0, optional=True)
ANY = Stat(optional=True)
FORWARD_SHARE = 1 / 3  # a forward pass costs about a third of a training step


@step(kind="evaluate.local")
class Evaluate(Step):
    """Mean of every metric of the objective on one split of the client's data (of several rows, the best one's).

    `validation` is the part that `train.holdout` keeps out of training. `metrics` are numbers about all predictions,
    beside the means of the objective's scores. `share` of the samples are looked at, always the same ones.
    """

    split: Literal["test", "train", "validation"] = "test"
    holdout: float = 0.0
    metrics: tuple[Metric, ...] = ()
    share: Annotated[float, Range(above=0, most=1)] = 1.0

    one_pass: ClassVar[bool] = True

    @property
    def serving(self) -> Serving:
        return Serving()

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, row = served_row(client, task, self.serving, client.rng)
        x, y = self.samples(client).tensors()
        return self.reply(client, slot, *outputs_of(client, row, x, y))

    def expects(self, known: Known) -> dict[str, Stat]:
        """Whatever the objective scores; of the usual metrics the range is known."""
        told = {m.name: A_SHARE if m.share else ANY for m in self.metrics}
        loss = Stat(low=known.lowest_loss, optional=True)
        return {"accuracy": A_SHARE, "loss": loss, "mse": AN_ERROR, "mae": AN_ERROR, **told}

    def work(self, train: int, test: int) -> float:
        return (
            self.share
            * FORWARD_SHARE
            * {"test": test, "train": train, "validation": self.holdout * train}[self.split]
        )

    def samples(self, client: Client) -> View:
        """The data to evaluate on."""
        if self.split == "validation":
            return self.some_of(split(client, self.holdout)[1])
        return self.some_of(client.test if self.split == "test" else client.train)

    def some_of(self, view: View) -> View:
        """The `share` of the samples, evenly spaced: those at floor(i n / count), i = 0, 1, ..."""
        if self.share == 1 or not len(view):
            return view
        count = math.ceil(self.share * len(view))
        return view.select(np.arange(count) * len(view) // count)

    def reply(self, client: Client, slot: int, outputs: Tensor, target: Tensor) -> Reply:
        scores = client.bench.objective.scores(outputs, target) if len(target) else {}
        return self.answer(client.id, slot, scores, outputs, target, len(target))

    def answer(
        self,
        client: int,
        slot: int,
        scores: Mapping[str, Tensor],
        outputs: Tensor | None,
        target: Tensor | None,
        size: int,
    ) -> Reply:
        """The means of the samples' scores, and the numbers about all predictions."""
        means: dict[str, Any] = {name: float(values.double().mean()) for name, values in scores.items()}
        if self.metrics and outputs is not None and target is not None and size:
            means |= told(self.metrics, outputs, target)
        return Reply(id=client, slot=slot, size=size, stats=means)

    def many(self, clients: Sequence[Client], row: Tensor, slot: int) -> list[Reply]:
        """The same for clients that use one row: a single forward pass over all their data."""
        if any("home" in client.state for client in clients):  # tensors of their own: no row is common
            return super().many(clients, row, slot)
        parts = [self.samples(client).tensors() for client in clients]
        x, y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        outputs, target = outputs_of(clients[0], row, x, y)
        sizes = [len(part[1]) for part in parts]
        return [
            self.reply(client, slot, out, wanted)
            for client, out, wanted in zip(
                clients, torch.split(outputs, sizes), torch.split(target, sizes), strict=True
            )
        ]


UNDEFINED = "undefined"  # the statistic that names the metrics which a client's data do not define


def told(metrics: Sequence[Metric], outputs: Tensor, target: Tensor) -> dict[str, Any]:
    """The numbers about all predictions; every client gives the same statistics, so undefined ones are 0 and named."""
    found = {m.name: m.value(outputs, target) for m in metrics if m.of is not None}
    undefined = [name for name, value in found.items() if value is None]
    values: dict[str, Any] = {name: 0.0 if name in undefined else found[name] for name in found}
    return {**values, UNDEFINED: ",".join(undefined)}


def values_in(stats: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that an evaluation told, without those that its data do not define."""
    undefined = str(stats.get(UNDEFINED, "")).split(",")
    return {
        name: float(value) for name, value in stats.items() if name != UNDEFINED and name not in undefined
    }


def no_scores(stats: Mapping[str, Any]) -> str:
    """Why these are not what an evaluation tells, or an empty string: numbers, and the names of undefined ones."""
    for name, value in stats.items():
        wanted = str if name == UNDEFINED else int | float
        if not isinstance(value, wanted):
            return (
                f"its {name} is a {type(value).__name__}, not {'names' if name == UNDEFINED else 'a number'}"
            )
    return ""


def outputs_of(client: Client, row: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The model's outputs for `x`, and the targets."""
    if not len(y):
        return torch.zeros(0), y
    return client.bench.forward(row, x), client.bench.objective.target(x, y)
