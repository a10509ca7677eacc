"""FedAvg with an optimiser at the server: FedAvgM (Hsu et al., 2019), FedAdam, FedYogi, FedAdagrad (Reddi et al.)."""

from dataclasses import replace

from covey.core import Method, method
from covey.methods.baselines import fedavg
from covey.parts.steps.train import Train
from covey.parts.update.optimiser import ServerOptimiser
from covey.settings import PartBelowOne, Positive, inline, takes


@method("fedavgm", family="aggregation", paper="https://arxiv.org/abs/1909.06335")
@takes(ServerOptimiser, without=("rule", "beta2", "tau"))
def fedavgm(
    train: Train, *, lr: Positive = 1.0, base: Method = inline(fedavg), beta1: PartBelowOne = 0.9
) -> Method:
    """FedAvg with momentum at the server: m <- beta1 m + (w - average), w <- w - lr m."""
    update = ServerOptimiser(rule="momentum", lr=lr, beta1=beta1)
    return replace(base, name="fedavgm", update=update)


@method("fedadam", family="aggregation", paper="https://arxiv.org/abs/2003.00295")
@takes(ServerOptimiser, without=("rule",))
def fedadam(
    train: Train,
    *,
    lr: Positive = 0.01,
    base: Method = inline(fedavg),
    beta1: PartBelowOne = 0.9,
    beta2: PartBelowOne = 0.99,
    tau: Positive = 1e-3,
) -> Method:
    """FedAvg whose server takes Adam's step along the average update: long where updates agree, short where they vary.

    m <- beta1 m + (1 - beta1) g, v <- beta2 v + (1 - beta2) g^2, w <- w - lr m / (sqrt(v) + tau), g = w - average.
    """
    update = ServerOptimiser(rule="adam", lr=lr, beta1=beta1, beta2=beta2, tau=tau)
    return replace(base, name="fedadam", update=update)


@method("fedyogi", family="aggregation", paper="https://arxiv.org/abs/2003.00295")
def fedyogi(train: Train, *, base: Method = inline(fedadam)) -> Method:
    """FedAdam whose second moment moves by a bounded amount: v <- v - (1 - beta2) g^2 sign(v - g^2)."""
    assert isinstance(base.update, ServerOptimiser)
    return replace(base, name="fedyogi", update=replace(base.update, rule="yogi"))


@method("fedadagrad", family="aggregation", paper="https://arxiv.org/abs/2003.00295")
@takes(ServerOptimiser, without=("rule", "beta2"))
def fedadagrad(
    train: Train,
    *,
    lr: Positive = 0.03,
    beta1: PartBelowOne = 0.0,
    base: Method = inline(fedavg),
    tau: Positive = 1e-3,
) -> Method:
    """FedAdam whose second moment only grows: v <- v + g^2."""
    update = ServerOptimiser(rule="adagrad", lr=lr, beta1=beta1, tau=tau)
    return replace(base, name="fedadagrad", update=update)
