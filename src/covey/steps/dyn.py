"""FedDyn's local step (Acar et al., 2021): training that is pulled back by the client's memory of past rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from covey.core import Client, Reply, Task
from covey.settings import validated
from covey.shows import AT_THE_SERVER, Shows
from covey.steps.train import AroundTraining, best_row, local_fit, reply_of


@validated
@dataclass(frozen=True, kw_only=True)
class DynTrain(AroundTraining):
    """FedDyn's training, pulled back by the client's memory of past rounds.

    It minimises F_k(v) + (a_k/2) ||v - w||^2 + a_k <v, s_k> from the received w, then s_k <- s_k + (w_k - w).

    a_k = alpha n_mean / n_k, where the task says the clients' mean size. The memory s_k (start 0) never leaves the
    client; a_k s_k is minus the gradient of F_k at the last w_k.
    """

    alpha: float = 0.01

    kind: ClassVar[str] = "train.dyn"

    shows: ClassVar[Shows] = Shows(what="how far every client has moved", instead=AT_THE_SERVER)

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        size = len(client.train)
        pull = self.alpha * float(task.args.get("mean_size", size)) / size
        trainable = client.bench.layout.trainable
        memory = client.state.get("dyn", torch.zeros(trainable))
        fit = local_fit(replace(self.train, prox=pull), client, start, linear=pull * memory)
        move = fit.row[:trainable] - start[:trainable]
        if bool(torch.isfinite(move).all()):  # a broken reply is refused; the memory must not keep it
            client.state["dyn"] = memory + move
        return reply_of(client, fit, slot, size=len(self.train.training_part(client)))
