"""MimeLite: mimicking centralized stochastic algorithms in federated learning (Karimireddy et al., 2021)."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.core import Client, Fact, Key, Method, Reply, Round, Shows, Step, Task, method, part, step
from covey.core.needs import ONE_MODEL
from covey.core.reply_schema import Known, Stat
from covey.core.shows import AT_THE_SERVER
from covey.methods.baselines import random
from covey.parts.banks import ModelWith
from covey.parts.steps.stepwise import LocalBatches, PlainTraining
from covey.parts.steps.train import Train, best_row, local_fit, reply_of
from covey.settings import Count, PartBelowOne, inline

GRADIENTS = Fact("the gradient of the sent model in every reply", 'set local = "mimic"')
MOMENTUM: Key[Tensor] = Key("mime.momentum", 'add "mime-momentum" to after')
SHOWS_GRADIENTS = Shows(what="a gradient of every client at the server's model", instead=AT_THE_SERVER)


@step("mimic", gives=(GRADIENTS,), passes=1.0, shows=SHOWS_GRADIENTS)
class MimicTrain(PlainTraining):
    """Steps with the server's momentum, which stays as it is: v <- v - lr ((1 - beta) g + beta m).

    The reply also holds the gradient of all the client's data at the model as it was sent.

    Args:
        beta: how much of the server's momentum is in every step.
    """

    beta: PartBelowOne = 0.9

    of: ClassVar[str] = "mime"

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        momentum = task.args.get("momentum", torch.zeros(client.bench.layout.trainable))
        whole = LocalBatches.of(self.train, replace(client, rng=np.random.default_rng(0)))
        gradient = whole.gradient(start, whole.everything())
        rest = 1 - self.beta
        slower = replace(self.train, lr=rest * self.train.lr)
        fit = local_fit(slower, client, start, linear=self.beta / rest * momentum)
        reply = reply_of(client, fit, slot, size=len(self.train.training_part(client)))
        return replace(reply, stats={**reply.stats, "gradient": gradient.numpy()})

    def expects(self, known: Known) -> dict[str, Stat]:
        return self.train.expects(known) | {"gradient": Stat(shape=(known.learned,), direction=True)}


@part("send", "with-momentum", needs=(ONE_MODEL, MOMENTUM), shows=SHOWS_GRADIENTS)
class WithMomentum(ModelWith):
    """Everybody gets the model and the server's momentum."""

    key: ClassVar[Key[Tensor]] = MOMENTUM
    arg: ClassVar[str] = "momentum"


@part("after", "mime-momentum", needs=(GRADIENTS,), gives=(MOMENTUM,), shows=SHOWS_GRADIENTS)
class RememberMomentum:
    """m <- (1 - beta) (mean of the clients' gradients at w) + beta m."""

    step: Step

    def __call__(self, now: Round) -> None:
        beta = getattr(self.step, "beta", 0.9)
        before = MOMENTUM.get(now.memory, torch.zeros(now.fleet.layout.trainable))
        told = [torch.as_tensor(reply.stats["gradient"]) for reply in now.replies]
        told = [gradient for gradient in told if gradient.shape == before.shape]
        if told:
            mean = torch.stack(told).mean(dim=0)
            MOMENTUM.keep(now.memory, (1 - beta) * mean + beta * before)


@method("mime-lite", family="drift", paper="https://arxiv.org/abs/2008.03606")
def mime_lite(train: Train, *, per_round: Count = 10, local: MimicTrain = inline(MimicTrain)) -> Method:
    """FedAvg whose clients take every step with the server's momentum, which no client changes.

    v <- v - lr ((1 - beta) g + beta m) from v = w; w <- mean of the v; m <- (1 - beta) mean of the gradients of all
    of a client's data at w + beta m (Karimireddy et al., 2021, MimeLite with SGDm). With beta = 0 it is FedAvg with
    equal weights. Clients send twice as much as in FedAvg.
    """
    return replace(
        random(train, per_round=per_round),
        name="mime-lite",
        send=WithMomentum(),
        local=local,
        after=(RememberMomentum(step=local),),
    )
