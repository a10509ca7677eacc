"""Training that also says how good the received model was on the client's data (FedFa; Huang et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from covey.core import Client, Reply, Task
from covey.errors import UserError
from covey.needs import ACCURACY, Facts
from covey.shows import Shows
from covey.statistics import SHARE, Known, Stat
from covey.steps.evaluate import FORWARD_SHARE, outputs_of
from covey.steps.train import AroundTraining, best_row, local_fit, reply_of


@dataclass(frozen=True, kw_only=True)
class ScoredTrain(AroundTraining):
    """Training that also tells the accuracy of the model as it was received."""

    kind: ClassVar[str] = "train.scored"
    gives: ClassVar[Facts] = (ACCURACY,)
    shows: ClassVar[Shows] = Shows(
        what="the exact accuracy of the model on every client's data", instead="use fedavg"
    )

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        part = self.train.training_part(client)
        scores = client.bench.objective.scores(*outputs_of(client, start, *part.tensors()))
        if "accuracy" not in scores:
            raise UserError(
                "method fedfa weights clients by their accuracy, which this objective does not have"
            )
        reply = reply_of(client, local_fit(self.train, client, start), slot, size=len(part))
        accuracy = float(scores["accuracy"].double().mean())
        return replace(reply, stats={**reply.stats, "accuracy": accuracy})

    def expects(self, known: Known) -> dict[str, Stat]:
        return {**self.train.expects(known), "accuracy": SHARE}

    def work(self, train: int, test: int) -> float:
        return self.train.work(train, test) + FORWARD_SHARE * train
