"""Per-FedAvg: personalized federated learning with theoretical guarantees (Fallah et al., 2020)."""

from dataclasses import replace
from typing import ClassVar

from covey.core import NOTHING, Client, Method, Reply, Task, method, step
from covey.methods.baselines import random
from covey.parts.steps.stepwise import LocalBatches, PlainTraining, pairs
from covey.parts.steps.train import Train, best_row
from covey.settings import Count, Positive, inline


@step("meta", shows=NOTHING)
class MetaTrain(PlainTraining):
    """Trains what one step on the client's data would make good: w <- w - lr g(w - alpha g(w; first); second).

    First-order: the derivative of the inner step is left out (the paper's FO variant).

    Args:
        alpha: learning rate of the one step.
    """

    alpha: Positive = 0.01

    of: ClassVar[str] = "per-fedavg"

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, row = best_row(client, task)
        batches = LocalBatches.of(self.train, client)
        trainable = client.bench.layout.trainable
        for first, second in pairs(batches.order):
            ahead = row.clone()
            ahead[:trainable] -= self.alpha * batches.gradient(row, first)
            row = row + (batches.step(ahead, second) - ahead)
        return batches.reply(client, row, slot)


@method("per-fedavg", family="personalised", paper="https://arxiv.org/abs/2002.07948")
def per_fedavg(train: Train, *, per_round: Count = 10, local: MetaTrain = inline(MetaTrain)) -> Method:
    """Finds the model from which one step on a client's own data gets furthest; each client takes that step before use.

    w_k <- w_k - lr g(w_k - alpha g(w_k; D); D') on pairs of batches, w <- mean of the w_k (Fallah et al., 2020,
    Algorithm 1, first-order). Whoever uses the model trains it for one step of size alpha first.
    """
    return replace(
        random(train, per_round=per_round),
        name="per-fedavg",
        local=local,
        adapt=replace(train, epochs=1, batches=1, lr=local.alpha, lr_decay=1.0),
    )
