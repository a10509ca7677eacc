"""FedAvg with an optimiser at the server: FedAvgM (Hsu et al., 2019), FedAdam, FedYogi, FedAdagrad (Reddi et al.)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from covey.core.round import Method
from covey.methods.baselines import fedavg
from covey.parts.steps.train import Train
from covey.parts.update.optimiser import ServerOptimiser
from covey.settings.ranges import PartBelowOne, Positive
from covey.settings.registry import register
from covey.settings.signatures import picked, takes, validated


@register("method", "fedavgm", family="aggregation")
@validated
@takes(fedavg, ServerOptimiser, without=("rule", "beta2", "tau"))
def fedavgm(train: Train, *, lr: Positive = 1.0, **settings: Any) -> Method:
    """FedAvg with momentum at the server: m <- beta1 m + (w - average), w <- w - lr m."""
    return with_optimiser(train, "fedavgm", rule="momentum", lr=lr, **settings)


@register("method", "fedadam", family="aggregation")
@validated
@takes(fedavg, ServerOptimiser, without=("rule",))
def fedadam(train: Train, *, lr: Positive = 0.01, **settings: Any) -> Method:
    """FedAvg whose server takes Adam's step along the average update: long where updates agree, short where they vary.

    m <- beta1 m + (1 - beta1) g, v <- beta2 v + (1 - beta2) g^2, w <- w - lr m / (sqrt(v) + tau), g = w - average.
    """
    return with_optimiser(train, "fedadam", rule="adam", lr=lr, **settings)


@register("method", "fedyogi", family="aggregation")
@validated
@takes(fedavg, ServerOptimiser, without=("rule",))
def fedyogi(train: Train, *, lr: Positive = 0.01, **settings: Any) -> Method:
    """FedAdam whose second moment moves by a bounded amount: v <- v - (1 - beta2) g^2 sign(v - g^2)."""
    return with_optimiser(train, "fedyogi", rule="yogi", lr=lr, **settings)


@register("method", "fedadagrad", family="aggregation")
@validated
@takes(fedavg, ServerOptimiser, without=("rule", "beta2"))
def fedadagrad(train: Train, *, lr: Positive = 0.03, beta1: PartBelowOne = 0.0, **settings: Any) -> Method:
    """FedAdam whose second moment only grows: v <- v + g^2."""
    return with_optimiser(train, "fedadagrad", rule="adagrad", lr=lr, beta1=beta1, **settings)


def with_optimiser(train: Train, name: str, **settings: Any) -> Method:
    """FedAvg and what the server does with its average."""
    update = ServerOptimiser(**picked(settings, ServerOptimiser))
    return replace(fedavg(train, **picked(settings, fedavg)), name=name, update=update)
