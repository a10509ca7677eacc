"""Training that also says how useful the client's data are to the present model (Oort; Lai et al., 2021)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from covey.core import Client, Reply, Task
from covey.needs import UTILITY, Facts
from covey.shows import Shows
from covey.statistics import Known, Stat
from covey.steps.train import AroundTraining, Train, best_row, local_fit, reply_of


@dataclass(frozen=True, kw_only=True)
class TrainWithUtility(AroundTraining):
    """Training that also tells how useful the client's data are: |B| sqrt(mean of the squared per-sample losses).

    B are the samples of the first epoch's batches, as training draws them. The losses are those of the model as it
    was sent: Oort's own client averages them while the model already changes, which no other party could check. They
    come out of training itself on a device, and cost nothing more.
    """

    kind: ClassVar[str] = "train.utility"
    gives: ClassVar[Facts] = (UTILITY,)
    shows: ClassVar[Shows] = Shows(what="the exact loss of every client's samples", instead="use fedavg")

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        part = self.train.training_part(client)
        x, y = part.select(first_epoch(self.train, len(part), copy.deepcopy(client.rng))).tensors()
        losses = client.bench.objective.scores(
            client.bench.forward(start, x), client.bench.objective.target(x, y)
        )["loss"]
        fit = local_fit(self.train, client, start)
        reply = reply_of(client, fit, slot, size=len(part))
        return replace(reply, stats={**reply.stats, "utility": utility(losses)})

    def expects(self, known: Known) -> dict[str, Stat]:
        return {**self.train.expects(known), "utility": Stat(low=0.0)}


def first_epoch(train: Train, samples: int, rng: np.random.Generator) -> np.ndarray:
    """The samples that the first epoch's batches hold, in ascending order; `rng` stands where training will find it."""
    one = replace(train, epochs=1)
    return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *one.order(samples, rng)]))


def utility(losses: Tensor) -> float:
    """|B| sqrt(mean of squared losses)."""
    return float(len(losses) * np.sqrt(float(losses.double().square().mean())))


def most_samples(train: Train) -> int:
    """|B| at most: what the batches of one round can hold."""
    return 2**62 if train.batches is None else train.batches * train.batch
