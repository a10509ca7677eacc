"""Server optimisers: the round's average update is a gradient that the server takes a step along (Reddi et al., 2021).

FedAvgM (Hsu et al., 2019) takes it with momentum, FedAdam, FedYogi and FedAdagrad with a rate of its own for every
parameter. Every model of the bank has its own optimiser; one that nobody worked on stays, and so do its moments.
"""

from typing import Literal

import torch
from torch import Tensor

from covey.core import NOTHING, Key, Round, part
from covey.settings import PartBelowOne, Positive

ServerRule = Literal["momentum", "adam", "yogi", "adagrad"]
Moments = tuple[Tensor, Tensor]  # m and v

MOMENTS: Key[dict[int, Moments]] = Key("server optimiser")  # by row


@part("update", "optimiser", shows=NOTHING)
class ServerOptimiser:
    """The server's step from the old model along the average update: with momentum, or as Adam, Yogi or Adagrad do.

    With g = w - average: m <- beta1 m + (1 - beta1) g, w <- w - lr m / (sqrt(v) + tau), where v <- v + g^2 (adagrad),
    v <- beta2 v + (1 - beta2) g^2 (adam) or v <- v - (1 - beta2) g^2 sign(v - g^2) (yogi), from v = tau^2 on and not
    corrected for bias, as in the paper. momentum (FedAvgM): m <- beta1 m + g, w <- w - lr m. Without
    `lr` it is 1 for momentum, else 0.01.

    Args:
        rule: momentum, adam, yogi or adagrad.
        lr: the server's learning rate.
        beta1: how much of the first moment (momentum) is kept from round to round.
        beta2: how much of the second moment is kept from round to round.
        tau: what is added to the square root of the second moment.
    """

    rule: ServerRule = "adam"
    lr: Positive | None = None
    beta1: PartBelowOne = 0.9
    beta2: PartBelowOne = 0.99
    tau: Positive = 1e-3

    def __call__(self, now: Round, rows: Tensor) -> Tensor:
        trainable = now.fleet.layout.trainable
        moments = dict(MOMENTS.get(now.memory, {}))
        new = rows.clone()
        for row in sorted({reply.slot for reply in now.replies}):
            old = now.models[row, :trainable]
            g = old - rows[row, :trainable]
            m, v = moments.get(row, (torch.zeros_like(g), torch.full_like(g, self.tau**2)))
            m, v = moments[row] = self.moved(m, v, g)
            new[row, :trainable] = old - self.step(m, v)
        MOMENTS.keep(now.memory, moments)
        return new

    def moved(self, m: Tensor, v: Tensor, g: Tensor) -> Moments:
        """Both moments with the gradient in."""
        if self.rule == "momentum":
            return self.beta1 * m + g, v
        square = g.square()
        if self.rule == "adagrad":
            v = v + square
        elif self.rule == "adam":
            v = self.beta2 * v + (1 - self.beta2) * square
        else:
            v = v - (1 - self.beta2) * square * torch.sign(v - square)
        return self.beta1 * m + (1 - self.beta1) * g, v

    def step(self, m: Tensor, v: Tensor) -> Tensor:
        if self.rule == "momentum":
            return (self.lr or 1.0) * m
        return (self.lr or 0.01) * m / (v.sqrt() + self.tau)
