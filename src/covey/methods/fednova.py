"""FedNova: tackling the objective inconsistency problem in heterogeneous federated optimization (Wang et al., 2020)."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from covey.arrays import Array
from covey.core import Method, Mixing, Round, Shows, method, part
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.mix.average import Weighting, weights
from covey.parts.steps.train import Train
from covey.settings import inline


def local_lengths(steps: Array, train: Train, lr: float) -> Array:
    """||a_k||_1: how often a client's gradients count in its update after that many local steps.

    tau for plain steps; (tau - m (1 - m^tau) / (1 - m)) / (1 - m) with momentum m; (1 - (1 - lr mu)^tau) / (lr mu) when
    the client is held to the model it was sent.
    """
    if train.momentum:
        m = train.momentum
        return (steps - m * (1 - m**steps) / (1 - m)) / (1 - m)
    if train.prox:
        return np.asarray((1 - (1 - lr * train.prox) ** steps) / (lr * train.prox))
    return steps


@part("mix", "normalised")
class NormalisedAverage:
    """FedNova's average of updates per local step, tau_k by `local_lengths`, p_k the share of the reply."""

    train: Train
    weighting: Weighting = "samples"

    shows: ClassVar[Shows] = Shows(
        what="how many steps a client takes, which is its number of samples", instead="use fedavg"
    )

    def __post_init__(self) -> None:
        if (
            self.train.optimiser != "sgd"
            or (self.train.momentum and self.train.prox)
            or self.train.keep_momentum
        ):
            raise UserError(
                "fednova counts local steps of SGD: set train.optimiser = sgd, train.keep_momentum = false, and one of "
                "train.momentum and train.prox to 0"
            )

    def __call__(self, now: Round) -> Mixing:
        count = len(now.models)
        steps = np.array([max(1.0, float(reply.stats["batches"])) for reply in now.replies])
        tau = local_lengths(steps, self.train, self.train.recipe(now.number).lr)
        slots = np.array([reply.slot for reply in now.replies])
        share = weights(now.replies, self.weighting)
        matrix = np.zeros((count, count + len(now.replies)))
        matrix[:, :count] = np.eye(count)
        for slot in np.unique(slots):
            here = np.flatnonzero(slots == slot)
            p = share[here] / share[here].sum()
            factor = (p @ tau[here]) * p / tau[here]
            matrix[slot, slot] = 1 - factor.sum()
            matrix[slot, count + here] = factor
        return Mixing(factors=[csr_array(matrix)])


@method("fednova", family="aggregation", paper="https://arxiv.org/abs/2007.07481")
def fednova(
    train: Train, *, base: Method = inline(fedavg), mix: NormalisedAverage = inline(NormalisedAverage)
) -> Method:
    """FedAvg whose updates are divided by the number of local steps, so that nobody counts more for training longer.

    w <- w + tau_eff sum of p_k (w_k - w) / tau_k with tau_eff = sum of p_k tau_k (Wang et al., 2020, eq. 6). With
    equally many local steps at every client it is FedAvg.
    """
    return replace(base, name="fednova", mix=mix)
