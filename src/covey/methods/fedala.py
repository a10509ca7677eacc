"""FedALA: adaptive local aggregation for personalized federated learning (Zhang et al., 2023)."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.core import NOTHING, Client, Method, Reply, Task, method, step
from covey.methods.baselines import fedavg
from covey.parts.steps.home import at_home
from covey.parts.steps.served import TRAINED_MODEL
from covey.parts.steps.stepwise import LocalBatches, PlainTraining, is_finite
from covey.parts.steps.train import Train, best_row, local_fit, reply_of
from covey.settings import Count, Positive, Share, inline

SETTLING = 50  # passes at most, until W settles
WINDOW = 10  # passes over which the loss is watched
SETTLED = 0.1  # deviation of the loss over them at which W has settled


@step("ala", gives=(TRAINED_MODEL,), shows=NOTHING)
class LocalAggregationTrain(PlainTraining):
    """Starts from v + (w - v) * W, where W says for every weight of the last tensors how much of w to take.

    v is the client's own model of its last round. W, from ones on, is learned on a part of the client's data:
    W <- clip(W - rate g(v + (w - v) * W) * (w - v), 0, 1): until it settles when first used, later once per round. What
    comes before the last tensors is taken from the common model.

    Args:
        last: how many tensors are mixed weight by weight; a layer usually has two.
        share: of the client's data on which W is learned.
        rate: learning rate of W.
    """

    last: Count = 2
    share: Share = 0.8
    rate: Positive = 1.0

    of: ClassVar[str] = "fedala"

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, common = best_row(client, task)
        start = self.mixed(client, common) if "own" in client.state else common
        fit = local_fit(self.train, client, start)
        if is_finite(fit.row):
            client.state["own"] = fit.row
        return reply_of(client, fit, slot, size=len(self.train.training_part(client)))

    def mixed(self, client: Client, common: Tensor) -> Tensor:
        """The model to start from; the weights W are kept at the client."""
        own = client.state["own"]
        upper = at_home(client.bench.layout, self.last, norms=False)
        apart = torch.where(upper, common - own, torch.zeros_like(own))
        base = torch.where(upper, own, common)
        known = client.state.get("ala.weights")
        weights = torch.ones_like(own) if known is None else known
        batches = LocalBatches.of(replace(self.train, epochs=1), client)
        order = batches.order[: max(1, round(self.share * len(batches.order)))]
        trainable = client.bench.layout.trainable
        passed: list[float] = []
        for _ in range(SETTLING if known is None else 1):
            for batch in order:
                slope = batches.gradient(base + apart * weights, batch) * apart[:trainable]
                weights[:trainable] = (weights[:trainable] - self.rate * slope).clamp(0, 1)
            passed.append(float(np.mean(batches.losses[-len(order) :])))
            if len(passed) > WINDOW and np.std(passed[-WINDOW:]) < SETTLED:
                break
        if is_finite(weights):
            client.state["ala.weights"] = weights
        return base + apart * weights

    def work(self, train: int, test: int) -> float:
        return self.train.work(train, test) + self.share * train


@method("fedala", family="personalised", paper="https://arxiv.org/abs/2212.01197")
def fedala(
    train: Train,
    *,
    base: Method = inline(fedavg),
    local: LocalAggregationTrain = inline(LocalAggregationTrain),
) -> Method:
    """FedAvg whose clients start from a mixture of the common and their own last model, learned weight by weight.

    v + (w - v) * W for the last tensors, with W <- clip(W - rate g * (w - v), 0, 1) learned on a share of the client's
    data (Zhang et al., 2023); a client uses its trained model.
    """
    return replace(base, name="fedala", local=local)
