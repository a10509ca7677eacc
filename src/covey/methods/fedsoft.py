"""FedSoft: soft clustered federated learning with proximal local updating (Ruan and Joe-Wong, 2022)."""

from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_array

from covey.core import Client, Fact, Method, Mixing, Reply, Round, Shows, Task, method, part, step
from covey.core.reply_schema import SHARE, Known, Stat
from covey.core.shows import ANY_GROUPS
from covey.methods.ifca import AllModels, RandomStarts
from covey.parts.selection.plain import Uniform
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.train import AroundTraining, Train, local_fit, reply_of, with_own_buffers
from covey.settings import Count, NotNegative, PartBelowOne, inline

IMPORTANCE = Fact("how much of a client's data every model fits best in every reply", 'set local = "soft"')
SHOWS_BEST = Shows(what="which model has the lowest loss on every sample of a client", instead=ANY_GROUPS)


@step("soft", gives=(IMPORTANCE,), passes=FORWARD_SHARE, shows=SHOWS_BEST)
class SoftTrain(AroundTraining):
    """Trains one model near to all that fit the client's data: F_k(v) + (pull / 2) sum of u_s ||v - c_s||^2.

    u_s is the share of its samples that model s has the lowest loss on, at least `floor`; v starts from sum of u_s c_s.

    Args:
        pull: how strongly the trained model is held to the models (the paper's lambda).
        floor: the least importance of a model.
    """

    pull: NotNegative = 0.1
    floor: PartBelowOne = 0.01

    def __call__(self, client: Client, task: Task) -> Reply:
        rows = torch.stack([with_own_buffers(client, row) for row in task.models])
        share = importance(client, rows, self.floor)
        start = (torch.from_numpy(share) @ rows.double()).float()
        # sum of u_s (v - c_s) = v - start, as the shares add up to 1: held to where it starts
        fit = local_fit(replace(self.train, prox=self.pull), client, start)
        slot = task.slots[int(share.argmax())]
        reply = reply_of(client, fit, slot, size=len(self.train.training_part(client)))
        return replace(reply, stats={**reply.stats, "importance": share})

    def expects(self, known: Known) -> dict[str, Stat]:
        return self.train.expects(known) | {
            "importance": replace(SHARE, shape=(known.models,), total=(0.999, 1.001))
        }


def importance(client: Client, rows: torch.Tensor, floor: float) -> np.ndarray:
    """The share of the client's samples that each model has the lowest loss on, at least `floor` before scaling."""
    x, y = client.train.tensors()
    target = client.bench.objective.target(x, y)
    losses = [client.bench.objective.scores(client.bench.forward(row, x), target)["loss"] for row in rows]
    best = torch.stack(losses).argmin(dim=0).numpy()
    share = np.maximum(np.bincount(best, minlength=len(rows)) / max(1, len(y)), floor)
    return np.asarray(share / share.sum())


@part("mix", "soft", needs=(IMPORTANCE,), shows=SHOWS_BEST)
class SoftAverage:
    """c_s <- sum of u_ks n_k w_k / sum of u_ks n_k over all replies (FedSoft)."""

    def __call__(self, now: Round) -> Mixing:
        count = len(now.models)
        told = [np.asarray(reply.stats["importance"], float) for reply in now.replies]
        sizes = np.array([float(reply.size) for reply in now.replies])
        weight = np.stack([t if t.shape == (count,) else np.zeros(count) for t in told], axis=1) * sizes
        total = weight.sum(axis=1, keepdims=True)
        new = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
        return Mixing(factors=[csr_array(np.hstack([np.diag(1.0 - new.sum(axis=1)), new]))])


@method("fedsoft", family="clusters", paper="https://arxiv.org/abs/2112.06053")
def fedsoft(
    train: Train, *, per_round: Count = 10, k: Count = 4, local: SoftTrain = inline(SoftTrain)
) -> Method:
    """`k` models, and every client counts in each by the share of its data that the model fits best.

    A client trains one model near to the mixture of those that fit it: F(v) + (pull / 2) sum of u_s ||v - c_s||^2;
    c_s <- sum of u_ks n_k v_k / sum of u_ks n_k (Ruan and Joe-Wong, 2022). A client uses the best of the models.

    Args:
        k: how many models.
    """
    return Method(
        name="fedsoft",
        bank=RandomStarts(k=k, asked=per_round),
        select=Uniform(per_round=per_round),
        send=AllModels(),
        local=local,
        mix=SoftAverage(),
    )
