"""Training that also says how useful the client's data are to the present model (Oort)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from covey.core import Client, Reply, Task
from covey.statistics import Known, Stat
from covey.steps.train import Train, best_row, local_fit, reply_of


@dataclass(frozen=True, kw_only=True)
class TrainWithUtility:
    """Local training whose reply holds the statistical utility |B| sqrt(mean of the squared per-sample losses).

    B are the samples of the first epoch's batches. The losses are those of the model as it was sent: Oort's
    own client averages them while the model already changes, which no other party could check or repeat.
    """

    train: Train

    kind: ClassVar[str] = "train.utility"

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        part = self.train.training_part(client)
        most = min(len(part), most_samples(self.train))
        x, y = part.select(slice(0, most)).tensors()
        losses = client.bench.objective.scores(
            client.bench.forward(start, x), client.bench.objective.target(x, y)
        )["loss"]
        fit = local_fit(self.train, client, start)
        reply = reply_of(client, fit, slot, size=len(part))
        return replace(reply, stats={**reply.stats, "utility": utility(losses)})

    def expects(self, known: Known) -> dict[str, Stat]:
        return {**self.train.expects(known), "utility": Stat(low=0.0)}

    def work(self, train: int, test: int) -> float:
        """The losses come out of training itself on a device: they cost nothing more."""
        return self.train.work(train, test)


def utility(losses: Tensor) -> float:
    """|B| sqrt(mean of squared losses)."""
    return float(len(losses) * np.sqrt(float(losses.double().square().mean())))


def most_samples(train: Train) -> int:
    """|B| at most: what the batches of one round can hold."""
    return 2**62 if train.batches is None else train.batches * train.batch
