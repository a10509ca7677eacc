"""FedMGDA+: federated learning meets multi-objective optimisation (Hu et al., 2022)."""

from __future__ import annotations

from covey.core import Method
from covey.mix.mgda import CommonDescent
from covey.ranges import Count, Positive, Share
from covey.select.plain import Uniform
from covey.settings import validated
from covey.steps.train import Train


@validated
def fedmgda(train: Train, *, per_round: Count = 10, eta: Positive = 1.0, eps: Share = 0.1) -> Method:
    """A step of fixed length along a direction that serves all clients of the round.

    Every update is scaled to length 1, d_k = (w - w_k) / ||w - w_k||; w <- w - eta sum l_k d_k with the weights l that
    make the sum shortest, each at most `eps` from the client's share of samples (Hu et al., 2022). eps = 0 fixes the
    weights, eps = 1 is MGDA. The step is at most `eta` long in parameter space, whatever the learning rate.

    Args:
        per_round: how many clients work in a round.
        eta: length of the server's step.
        eps: how far a client's weight may be from its share of samples.
    """
    return Method(
        name="fedmgda",
        select=Uniform(per_round=per_round),
        local=train,
        mix=CommonDescent(eta=eta, eps=eps),
    )
