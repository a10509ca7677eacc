"""The references of every comparison: FedAvg (McMahan et al., 2017), FedProx (Li et al., 2020), alone, together."""

from dataclasses import replace

from covey.core import Method, method
from covey.parts.banks import one_per_client, to_owner
from covey.parts.mix.average import Average, Weighting, keep_own
from covey.parts.selection.plain import Everybody, Uniform, the_server
from covey.parts.steps.train import Train
from covey.settings import Count, NotNegative, inline


@method("fedavg", family="aggregation", paper="https://arxiv.org/abs/1602.05629")
def fedavg(train: Train, *, per_round: Count = 10, weighting: Weighting = "samples") -> Method:
    """Federated averaging: some clients train the global model, and the server averages what they send.

    w <- sum of n_k w_k / sum of n_k over the clients of the round (McMahan et al., 2017). `weighting` says what n_k
    is: the number of samples, 1 (equal), or the number of batches.
    """
    return Method(
        name="fedavg",
        select=Uniform(per_round=per_round),
        local=train,
        mix=Average(weighting=weighting),
    )


@method("fedprox", family="aggregation", paper="https://arxiv.org/abs/1812.06127")
def fedprox(train: Train, *, base: Method = inline(fedavg), mu: NotNegative = 0.01) -> Method:
    """FedAvg with a proximal term that keeps clients near the model they were sent.

    Every local step is v <- v - lr (gradient + mu (v - w)), with w the model of the round (Li et al., 2020). With
    mu = 0 it is FedAvg, bit for bit.

    Args:
        mu: how strongly clients are held to the model they were sent.
    """
    return replace(base, name="fedprox", local=replace(train, prox=mu))


@method("local", family="reference")
def local_only(train: Train) -> Method:
    """Each client trains alone: what a client can do without the others, the lower reference."""
    return Method(
        name="local",
        select=Everybody(),
        local=train,
        bank=one_per_client,
        send=to_owner,
        mix=keep_own,
    )


@method("centralized", family="reference")
def centralized(train: Train) -> Method:
    """All data in one place: the upper reference. Possible in a simulation only.

    Each round is what `train` says on everybody's data together.
    """
    return Method(
        name="centralized",
        select=the_server,
        local=train,
        mix=Average(weighting="equal"),
    )


@method("random", family="selection")
def random(train: Train, *, per_round: Count = 10, weighting: Weighting = "equal") -> Method:
    """Clients drawn uniformly at random, averaged with equal weights: HACCS' first baseline."""
    return replace(fedavg(train, per_round=per_round, weighting=weighting), name="random")
