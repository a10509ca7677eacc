"""APFL: adaptive personalized federated learning (Deng et al., 2020)."""

from dataclasses import replace
from typing import ClassVar

import torch

from covey.core import NOTHING, Client, Method, Reply, Task, method, step
from covey.methods.baselines import fedavg
from covey.parts.steps.served import TRAINED_MODEL
from covey.parts.steps.stepwise import LocalBatches, PlainTraining, is_finite
from covey.parts.steps.train import Train, best_row
from covey.settings import Share, inline


@step("mixture", gives=(TRAINED_MODEL,), shows=NOTHING)
class MixtureTrain(PlainTraining):
    """Trains the common model w, and beside it v so that the mixture a v + (1 - a) w fits the client's data.

    v and a never leave the client.

    Args:
        alpha: share of the own model v in the mixture, at first; 0 is FedAvg.
        adaptive: whether the client learns that share.
    """

    alpha: Share = 0.5
    adaptive: bool = True

    of: ClassVar[str] = "apfl"

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, common = best_row(client, task)
        batches = LocalBatches.of(self.train, client)
        trainable = client.bench.layout.trainable
        own = client.state.get("apfl.v", common)
        share = float(client.state.get("apfl.alpha", self.alpha))
        for number, batch in enumerate(batches.order):
            common = batches.step(common, batch)
            mixture = torch.lerp(common, own, share)
            moved = batches.step(mixture, batch)
            slope = torch.dot((own - common)[:trainable], (mixture - moved)[:trainable])
            own = own + share * (moved - mixture)
            if number == 0 and self.adaptive:
                share = min(1.0, max(0.0, share - float(slope)))
        mixture = torch.lerp(common, own, share)
        if is_finite(own, mixture):
            client.state |= {"apfl.v": own, "apfl.alpha": share, "own": mixture}
        return batches.reply(client, common, slot)

    def work(self, train: int, test: int) -> float:
        return 2 * self.train.work(train, test)


@method("apfl", family="personalised", paper="https://arxiv.org/abs/2003.13461")
def apfl(
    train: Train, *, base: Method = inline(fedavg), local: MixtureTrain = inline(MixtureTrain)
) -> Method:
    """FedAvg beside which every client trains a model that it mixes with the common one, and learns in which shares.

    w <- w - lr g(w), v <- v - lr a g(a v + (1 - a) w) on every batch, a <- a - lr <v - w, g(a v + (1 - a) w)> once per
    round (Deng et al., 2020, Algorithm 1); a client uses a v + (1 - a) w.
    """
    return replace(base, name="apfl", local=local)
