"""FedFa: fairness and accuracy in federated learning (Huang et al., 2020)."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from covey.arrays import Array
from covey.core import Client, Key, Method, Mixing, Reply, Round, Shows, Stat, Task, method, part, step
from covey.core.needs import ACCURACY
from covey.core.reply_schema import SHARE, Known
from covey.core.shows import NOTHING
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.mix.average import weighted_rows
from covey.parts.selection.plain import Uniform
from covey.parts.steps.evaluate import FORWARD_SHARE, outputs_of
from covey.parts.steps.train import AroundTraining, Train, best_row, local_fit, reply_of
from covey.settings import Count, PartBelowOne, Share, inline, takes


@step("scored", gives=(ACCURACY,), passes=FORWARD_SHARE)
class ScoredTrain(AroundTraining):
    """Training that also tells the accuracy of the model as it was received."""

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


Momentum = Literal["accelerate", "published"]

VELOCITY: Key[Tensor] = Key("momentum")


@part("update", "momentum", shows=NOTHING)
class ServerMomentum:
    """FedFa's momentum at the server, for every model.

    m <- gamma m + (1 - gamma)(w - new); w <- new - lr m, with the clients' learning rate of the round.

    w - new is the round's pseudo-gradient, so the model continues in the direction of its past steps. The `published`
    code has new - w in its place: there the momentum brakes. Every model has its own momentum; one that nobody
    worked on stays.

    Args:
        gamma: momentum of clients and server.
        momentum: accelerate continues along the smoothed step; published has the public code's sign, which brakes.
    """

    train: Train
    gamma: PartBelowOne = 0.9
    momentum: Momentum = "accelerate"

    def __call__(self, now: Round, rows: Tensor) -> Tensor:
        trainable = now.fleet.layout.trainable
        count = len(now.models)
        gradient = now.models[:, :trainable] - rows[:count, :trainable]
        if self.momentum == "published":
            gradient = -gradient
        kept = VELOCITY.get(now.memory, gradient[:0])
        before = torch.cat([kept, torch.zeros_like(gradient[len(kept) :])])
        worked = (gradient != 0).any(dim=1)
        worked[[reply.slot for reply in now.replies]] = True
        velocity = torch.where(worked[:, None], self.gamma * before + (1 - self.gamma) * gradient, before)
        VELOCITY.keep(now.memory, velocity)
        new = rows.clone()
        new[:count][worked, :trainable] -= self.train.recipe(now.number).lr * velocity[worked]
        return new


TIMES: Key[dict[int, int]] = Key("fedfa.times")


def fair_weights(accuracy: Array, times: Array, beta: float) -> Array:
    """p_k = (1 - beta) a_k + beta b_k: who is less accurate, and who participated more often, counts more.

    a_k ~ -log2(acc_k / sum acc + 1e-6) and b_k ~ -log2(1 - f_k / sum f + 1e-5), each scaled to sum 1. If nobody is
    right about anything, a_k is equal for all; a single client has all the weight.
    """
    if len(accuracy) == 1:
        return np.ones(1)
    everybody = np.full(len(accuracy), 1 / len(accuracy))
    a = -np.log2(accuracy / accuracy.sum() + 1e-6) if accuracy.sum() > 0 else everybody
    b = -np.log2(1 - times / times.sum() + 1e-5)
    a, b = np.maximum(a, 0), np.maximum(b, 0)  # the small constants can push a weight just below 0
    return np.asarray((1 - beta) * a / a.sum() + beta * b / b.sum())


@part("mix", "fairness", needs=(ACCURACY,))
class FairAverage:
    """FedFa's average, in which less accurate and more frequent clients count more.

    Remembers how often each client has participated.

    Args:
        beta: weight of how often a client participated, against its accuracy.
    """

    beta: Share = 0.5

    shows: ClassVar[Shows] = Shows(
        what="single updates and accuracies", instead="use fedavg", in_updates=True
    )

    def __call__(self, now: Round) -> Mixing:
        before = TIMES.get(now.memory, {})
        times = before | {reply.id: before.get(reply.id, 0) + 1 for reply in now.replies}
        TIMES.keep(now.memory, times)
        weights = fair_weights(
            np.array([float(reply.stats["accuracy"]) for reply in now.replies]),
            np.array([float(times[reply.id]) for reply in now.replies]),
            self.beta,
        )
        return Mixing(factors=[weighted_rows(now, weights)])


@method("fedfa", family="aggregation")
@takes(Uniform, ServerMomentum)
def fedfa(
    train: Train,
    *,
    gamma: PartBelowOne = 0.9,
    per_round: Count = 10,
    mix: FairAverage = inline(FairAverage),
    momentum: Momentum = "accelerate",
) -> Method:
    """Momentum at the clients and at the server, and weights for fairness.

    Clients train with momentum `gamma`. Their weight is (1 - beta) a_k + beta b_k: a_k grows as the received model's
    accuracy on their data falls, b_k with how often they participated (Huang et al., 2020). The server then continues
    along the smoothed step: m <- gamma m + (1 - gamma)(w - new); w <- new - lr m. With `momentum = "published"` the
    sign is that of the public code, which brakes.
    """
    train = replace(train, momentum=gamma)
    return replace(
        fedavg(train, per_round=per_round),
        name="fedfa",
        local=ScoredTrain(train=train),
        mix=mix,
        update=ServerMomentum(train=train, gamma=gamma, momentum=momentum),
    )
