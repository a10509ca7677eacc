"""FedFa: fairness and accuracy in federated learning (Huang et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.core import Method, Mixing, Round
from covey.mix.average import weighted_rows
from covey.needs import ACCURACY, Facts, Key
from covey.ranges import PartBelowOne, Share
from covey.select.plain import Uniform
from covey.settings import picked, takes, validated
from covey.shows import Shows
from covey.steps.scored import ScoredTrain
from covey.steps.train import Train
from covey.update.momentum import ServerMomentum

Array = NDArray[np.float64]

TIMES: Key[dict[int, int]] = Key("fedfa.times")


def fair_weights(accuracy: Array, times: Array, beta: float) -> Array:
    """p_k = (1 - beta) a_k + beta b_k: who is less accurate, and who took part more often, counts more.

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


@validated
@dataclass(frozen=True, kw_only=True)
class FairAverage:
    """FedFa's average, in which less accurate and more frequent clients count more.

    Remembers how often each client has taken part.

    Args:
        beta: weight of how often a client took part, against its accuracy.
    """

    beta: Share = 0.5

    needs: ClassVar[Facts] = (ACCURACY,)
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
        return Mixing(factors=[weighted_rows(now, [reply.slot for reply in now.replies], weights)])


@validated
@takes(Uniform, FairAverage, ServerMomentum)
def fedfa(train: Train, *, gamma: PartBelowOne = 0.9, **settings: Any) -> Method:
    """Momentum at the clients and at the server, and weights for fairness.

    Clients train with momentum `gamma`. Their weight is (1 - beta) a_k + beta b_k: a_k grows as the received model's
    accuracy on their data falls, b_k with how often they took part (Huang et al., 2020). The server then goes on along
    the smoothed step: m <- gamma m + (1 - gamma)(w - new); w <- new - lr m. With `momentum = "published"` the sign
    is that of the public code, which brakes.
    """
    train = replace(train, momentum=gamma)
    return Method(
        name="fedfa",
        select=Uniform(**picked(settings, Uniform)),
        local=ScoredTrain(train=train),
        mix=FairAverage(**picked(settings, FairAverage)),
        update=ServerMomentum(train=train, gamma=gamma, **picked(settings, ServerMomentum)),
    )
