"""FedAvg with an optimiser at the server: FedAvgM (Hsu et al., 2019), FedAdam, FedYogi, FedAdagrad (Reddi et al.)."""

from __future__ import annotations

from dataclasses import replace

from covey.core import Method
from covey.methods.baselines import fedavg
from covey.mix.average import Weighting
from covey.steps import Train
from covey.update.optimiser import Rule, ServerOptimiser


def fedavgm(
    train: Train,
    *,
    per_round: int = 10,
    weighting: Weighting = "samples",
    lr: float = 1.0,
    beta1: float = 0.9,
) -> Method:
    """FedAvg with momentum at the server: m <- beta1 m + (w - average), w <- w - lr m.

    Args:
        per_round: how many clients work in a round.
        weighting: what a reply counts by: its samples, equally, or its batches.
        lr: the server's learning rate.
        beta1: how much of the first moment (momentum) is kept from round to round.
    """
    update = ServerOptimiser(rule="momentum", lr=lr, beta1=beta1)
    return replace(fedavg(train, per_round=per_round, weighting=weighting), name="fedavgm", update=update)


def fedadam(
    train: Train,
    *,
    per_round: int = 10,
    weighting: Weighting = "samples",
    lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 0.001,
) -> Method:
    """FedAvg whose server takes Adam's step along the average update: long where updates agree, short where they vary.

    m <- beta1 m + (1 - beta1) g, v <- beta2 v + (1 - beta2) g^2, w <- w - lr m / (sqrt(v) + tau), g = w - average.

    Args:
        per_round: how many clients work in a round.
        weighting: what a reply counts by: its samples, equally, or its batches.
        lr: the server's learning rate.
        beta1: how much of the first moment (momentum) is kept from round to round.
        beta2: how much of the second moment is kept from round to round.
        tau: what is added to the square root of the second moment.
    """
    return _adaptive("adam", train, per_round, weighting, lr, beta1, beta2, tau)


def fedyogi(
    train: Train,
    *,
    per_round: int = 10,
    weighting: Weighting = "samples",
    lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 0.001,
) -> Method:
    """FedAdam whose second moment moves by a bounded amount: v <- v - (1 - beta2) g^2 sign(v - g^2).

    Args:
        per_round: how many clients work in a round.
        weighting: what a reply counts by: its samples, equally, or its batches.
        lr: the server's learning rate.
        beta1: how much of the first moment (momentum) is kept from round to round.
        beta2: how much of the second moment is kept from round to round.
        tau: what is added to the square root of the second moment.
    """
    return _adaptive("yogi", train, per_round, weighting, lr, beta1, beta2, tau)


def fedadagrad(
    train: Train,
    *,
    per_round: int = 10,
    weighting: Weighting = "samples",
    lr: float = 0.03,
    beta1: float = 0.0,
    tau: float = 0.001,
) -> Method:
    """FedAdam whose second moment only grows: v <- v + g^2.

    Args:
        per_round: how many clients work in a round.
        weighting: what a reply counts by: its samples, equally, or its batches.
        lr: the server's learning rate.
        beta1: how much of the first moment (momentum) is kept from round to round.
        tau: what is added to the square root of the second moment.
    """
    return _adaptive("adagrad", train, per_round, weighting, lr, beta1, 0.0, tau)


def _adaptive(
    rule: Rule,
    train: Train,
    per_round: int,
    weighting: Weighting,
    lr: float,
    beta1: float,
    beta2: float,
    tau: float,
) -> Method:
    update = ServerOptimiser(rule=rule, lr=lr, beta1=beta1, beta2=beta2, tau=tau)
    return replace(fedavg(train, per_round=per_round, weighting=weighting), name=f"fed{rule}", update=update)
