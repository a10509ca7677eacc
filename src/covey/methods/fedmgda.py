"""FedMGDA+: federated learning meets multi-objective optimisation (Hu et al., 2022)."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, minimize
from scipy.sparse import csr_array

from covey.arrays import Array
from covey.core import ONE_MODEL, Method, Mixing, Round, Shows, method, part
from covey.methods.baselines import fedavg
from covey.parts.mix.average import weighted_rows, weights
from covey.parts.mix.gram import products
from covey.parts.steps.train import Train
from covey.settings import Count, Positive, Share, inline

STANDSTILL = 1e-8  # added to the length of an update: who does not move has no say


def shortest(gram: Array, preferred: Array, eps: float) -> Array:
    """argmin ||sum l_k d_k||^2 over l >= 0, sum l = 1, |l_k - preferred_k| <= eps, from the products gram = <d_i, d_j>.

    A convex quadratic programme in as many unknowns as there are clients; `preferred` itself is always allowed.
    """

    def squared_length(share: Array) -> float:
        return float(share @ gram @ share)

    def slope(share: Array) -> Array:
        return np.asarray(2 * gram @ share)

    found = minimize(
        squared_length,
        preferred,
        jac=slope,
        bounds=Bounds(np.maximum(preferred - eps, 0), np.minimum(preferred + eps, 1)),
        constraints=LinearConstraint(np.ones((1, len(preferred))), 1, 1),
        method="SLSQP",
        tol=1e-15,
    )
    return np.asarray(found.x)


@part("mix", "common-descent", needs=(ONE_MODEL,))
class CommonDescent:
    """FedMGDA+: a step along a direction that serves all clients of the round.

    As a matrix: the old row keeps 1 - sum of eta l_k / ||w - w_k||, reply k gets eta l_k / ||w - w_k||. Buffers are
    averaged by samples.

    Args:
        eta: length of the server's step.
        eps: how far a client's weight may be from its share of samples.
    """

    eta: Positive = 1.0
    eps: Share = 0.1

    shows: ClassVar[Shows] = Shows(
        what="single updates, which it balances against each other",
        instead="use fedavg or cfic",
        in_updates=True,
    )

    def __call__(self, now: Round) -> list[Mixing]:
        trainable = now.fleet.layout.trainable
        samples = weights(now.replies, "samples")
        old = now.models[0, :trainable]
        moves = [old - reply.vector[:trainable] for reply in now.replies if reply.vector is not None]
        lengths = np.array([float(move.double().norm()) for move in moves]) + STANDSTILL
        gram = products(moves) / np.outer(lengths, lengths)
        pull = self.eta * shortest(gram, samples / samples.sum(), self.eps) / lengths
        step = csr_array(np.concatenate([[1 - pull.sum()], pull])[None])
        buffers = weighted_rows(now, samples)
        return [
            Mixing(factors=[step], columns=slice(0, trainable)),
            Mixing(factors=[buffers], columns=slice(trainable, None)),
        ]


@method("fedmgda", family="aggregation", paper="https://arxiv.org/abs/2006.11489")
def fedmgda(train: Train, *, per_round: Count = 10, mix: CommonDescent = inline(CommonDescent)) -> Method:
    """A step of fixed length along a direction that serves all clients of the round.

    Every update is scaled to length 1, d_k = (w - w_k) / ||w - w_k||; w <- w - eta sum l_k d_k with the weights l that
    make the sum shortest, each at most `eps` from the client's share of samples (Hu et al., 2022). eps = 0 fixes the
    weights, eps = 1 is MGDA. The step is at most `eta` long in parameter space, whatever the learning rate.
    """
    return replace(fedavg(train, per_round=per_round), name="fedmgda", mix=mix)
