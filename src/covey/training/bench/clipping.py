"""Steps on gradients that are clipped sample by sample, under noise (DP-SGD, Abadi et al., 2016), with Opacus."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from covey.errors import UserError, importing
from covey.training.objective import Objective, mixes_samples

TINY = 1e-6  # added to every length, as Opacus does, so that nothing is divided by 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Clipping:
    """v <- v - lr (sum over the batch of min(1, C / ||g_i||) g_i + noise) / expected.

    clip: C, the longest gradient of a sample. expected: expected number of samples in a batch. noise: makes what is
    added to the sum of a batch, one number per trainable parameter. seed: of dropout.
    """

    clip: float
    expected: float
    noise: Callable[[], np.ndarray]
    seed: int

    def factors(self, lengths: np.ndarray) -> np.ndarray:
        """How much of every sample's gradient counts."""
        return np.minimum(1.0, self.clip / (lengths + TINY))


def opacus_library() -> Any:
    """The package `opacus`, or one sentence on how to get it."""
    with importing('private.level = "example" needs the package opacus: install covey[private]'):
        import opacus
        import opacus.optimizers
    return opacus


def check_apart(model: nn.Module, objective: Objective) -> None:
    """Where layers, or the loss, mix samples, there is no gradient of one sample: one more changes all the others'."""
    if mixes_samples(objective):
        raise UserError(
            'private.level is "example", which this objective cannot have: what one sample costs depends on the others'
        )
    opacus_library()
    from opacus.validators import ModuleValidator

    if errors := ModuleValidator.validate(model, strict=False):
        raise UserError(f'private.level is "example", which this model cannot have: {errors[0]}')


class ClippedSums:
    """Sums of clipped gradients of a model, as Opacus makes them; the model is left with Opacus' hooks in it."""

    def __init__(self, model: nn.Module) -> None:
        self.private = opacus_library().GradSampleModule(model, loss_reduction="sum", strict=False)
        self.parameters = [p for p in model.parameters() if p.requires_grad]

    def __call__(self, goal: Objective, x: Tensor, target: Tensor, clip: float) -> Tensor:
        """sum of min(1, clip / ||g_i||) g_i over the samples, one flat row."""
        if not len(x):
            return torch.zeros(sum(p.numel() for p in self.parameters), device=x.device)
        optimiser = opacus_library().optimizers.DPOptimizer(
            torch.optim.SGD(self.parameters, lr=1.0),
            noise_multiplier=0.0,
            max_grad_norm=clip,
            expected_batch_size=1,
            loss_reduction="sum",
        )
        optimiser.zero_grad()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            loss_of_each(goal, self.private(x), target).backward()  # type: ignore[no-untyped-call]
        self.drop_endless()
        optimiser.clip_and_accumulate()
        total = torch.cat([p.summed_grad.flatten() for p in self.parameters])  # type: ignore[attr-defined]
        optimiser.zero_grad()
        return total

    def drop_endless(self) -> None:
        """A gradient that is not finite counts as nothing: no noise would hide it."""
        of_each = [p.grad_sample.flatten(1).isfinite().all(1) for p in self.parameters]  # type: ignore[attr-defined]
        endless = ~torch.stack(of_each).all(0)
        if endless.any():
            for p in self.parameters:
                p.grad_sample[endless] = 0.0  # type: ignore[attr-defined]


def loss_of_each(objective: Objective, outputs: Tensor, target: Tensor) -> Tensor:
    """The sum of what the samples cost, each by itself: a mean over all tokens of a batch would mix them.

    Of the losses that an accelerator knows it is the batch's loss times its size.
    """
    if objective.kernel:
        return objective.loss(outputs, target) * len(outputs)
    each = zip(torch.split(outputs, 1), torch.split(target, 1), strict=True)
    return torch.stack([objective.loss(*one) for one in each]).sum()


def poisson_batches(samples: int, rate: float, rng: np.random.Generator, steps: int) -> Sequence[np.ndarray]:
    """Batches of a Poisson sample: every sample by itself, with one probability."""
    return [np.flatnonzero(rng.random(samples) < rate) for _ in range(steps)]
