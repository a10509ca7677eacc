"""pFedMe: personalized federated learning with Moreau envelopes (Dinh et al., 2020)."""

from dataclasses import replace
from typing import ClassVar

from covey.core import NOTHING, Client, Method, Reply, Task, method, step
from covey.methods.baselines import fedavg
from covey.parts.steps.served import TRAINED_MODEL
from covey.parts.steps.stepwise import LocalBatches, PlainTraining, is_finite
from covey.parts.steps.train import Train, best_row
from covey.parts.update.optimiser import ServerOptimiser
from covey.settings import Count, Positive, inline


@step("moreau", gives=(TRAINED_MODEL,), shows=NOTHING)
class MoreauTrain(PlainTraining):
    """On every batch the own model t takes `inner` steps, held to w_k, and w_k, the common model's copy, follows it.

    Args:
        pull: how strongly the own model is held to w_k (the paper's lambda); lr times pull must stay below 2.
        inner: steps of the own model on every batch (the paper's K).
        rate: of w_k on its way to the own model (the paper's eta); none: the learning rate.
    """

    pull: Positive = 15.0
    inner: Count = 5
    rate: Positive | None = None

    of: ClassVar[str] = "pfedme"

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, near = best_row(client, task)
        batches = LocalBatches.of(self.train, client)
        trainable = client.bench.layout.trainable
        follow = (self.rate or batches.recipe.lr) * self.pull
        own = near
        for batch in batches.order:
            for _ in range(self.inner):
                own = batches.step(own, batch, linear=self.pull * (own - near)[:trainable])
            near = near - follow * (near - own)
        if is_finite(own):
            client.state["own"] = own
        return batches.reply(client, near, slot)

    def work(self, train: int, test: int) -> float:
        return self.inner * self.train.work(train, test)


@method("pfedme", family="personalised", paper="https://arxiv.org/abs/2006.08848")
def pfedme(
    train: Train,
    *,
    per_round: Count = 10,
    beta: Positive = 1.0,
    local: MoreauTrain = inline(MoreauTrain),
) -> Method:
    """Every client's own model is held to a local copy of the common one, which follows it and is averaged.

    On every batch t minimises F_k(t) + (pull / 2) ||t - w_k||^2 by `inner` steps and w_k <- w_k - rate pull (w_k - t);
    w <- (1 - beta) w + beta mean of the w_k (Dinh et al., 2020, Algorithm 1). A client uses t.

    Args:
        beta: of the server on its way to the mean; 1 takes the mean.
    """
    return replace(
        fedavg(train, per_round=per_round, weighting="equal"),
        name="pfedme",
        local=local,
        update=ServerOptimiser(rule="momentum", lr=beta, beta1=0.0) if beta != 1 else None,
    )
