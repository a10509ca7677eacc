"""Training that hides single samples: DP-SGD (Abadi et al., 2016) with Opacus, at the client."""

from __future__ import annotations

import copy
import math
import secrets
import warnings
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from covey.bench.torch_bench import ONE_AT_A_TIME
from covey.core import Client, Reply, Step, Task
from covey.errors import Refused, UserError
from covey.model import read_row
from covey.privacy_loss import Loss
from covey.ranges import Count, Epsilon, Positive, Range
from covey.settings import validated
from covey.statistics import Known, Stat
from covey.steps.train import Train, best_row


@validated
@dataclass(frozen=True, kw_only=True)
class ExampleTrain(Step):
    """SGD on gradients that are clipped sample by sample and summed with noise; every batch is a Poisson sample.

    v <- v - lr (sum over the batch of min(1, C / ||g_i||) g_i + N(0, (z C)^2)) / expected batch. The client finds z, so
    that all its updates of `rounds` rounds cost one sample at most `epsilon` at `delta`, and trains in no more rounds.

    Args:
        train: epochs, batch and learning rate.
        clip: C, the longest gradient of a sample.
        epsilon: privacy loss of one sample over all rounds.
        delta: the chance that it is larger.
        rounds: in which the client may be asked to train.
    """

    train: Train
    clip: Positive
    epsilon: Epsilon
    delta: Annotated[float, Range(above=0, below=1)]
    rounds: Count

    kind: ClassVar[str] = "train.example"

    def __call__(self, client: Client, task: Task) -> Reply:
        opacus = library()
        done = int(client.state.get("private rounds", 0))
        if done >= self.rounds:
            raise Refused(f"this client has trained in {done} rounds, for which its privacy loss was planned")
        slot, start = best_row(client, task)
        x, y = self.train.training_part(client).tensors()
        rate = min(1.0, self.train.batch / len(y))
        steps = self.steps(len(y))
        noise = opacus_noise(self.epsilon, self.delta, rate, steps * self.rounds)
        if client.account is not None and not done:  # one loss for all rounds, booked before the first
            client.account.lose(
                Loss(what="updates", mechanism="promised", noise=self.epsilon, rate=min(self.delta, 5e-6))
            )
        client.state["private rounds"] = done + 1
        seed = secrets.randbits(63) if client.live else int(client.rng.integers(2**62))
        rng = np.random.default_rng(secrets.randbits(128)) if client.live else client.rng
        bench = client.bench.on_torch()
        with ONE_AT_A_TIME:
            bench.load(start, training=True)
            model = copy.deepcopy(bench.model)
        check_model(model)
        goal = bench.objective
        private = opacus.GradSampleModule(model, loss_reduction="sum", strict=False)
        recipe = self.train.recipe(client.round)
        optimiser = opacus.optimizers.DPOptimizer(
            torch.optim.SGD(
                private.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
            ),
            noise_multiplier=noise,
            max_grad_norm=self.clip,
            expected_batch_size=max(1, round(rate * len(y))),
            loss_reduction="mean",
            generator=torch.Generator().manual_seed(seed),
            secure_mode=client.live,
        )
        target = goal.target(x, y)
        for _ in range(steps):
            drawn = torch.from_numpy(np.flatnonzero(rng.random(len(y)) < rate))
            optimiser.zero_grad()
            one_batch(private, goal, x[drawn], target[drawn])
            optimiser.step()
        row = torch.cat([read_row(model)])
        return Reply(id=client.id, vector=row.detach(), slot=slot, size=1)

    def steps(self, samples: int) -> int:
        """Batches of one round."""
        whole = self.train.epochs_for(samples) * math.ceil(samples / self.train.batch)
        return whole if self.train.batches is None else min(whole, self.train.batches)

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        return {}

    def work(self, train: int, test: int) -> float:
        return self.train.work(train, test)


def one_batch(model: nn.Module, goal: Any, x: Tensor, target: Tensor) -> None:
    """Gradients sample by sample; of an empty batch they are none, and the step is noise alone."""
    if len(x):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            (goal.loss(model(x), target) * len(x)).backward()
        return
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad_sample = torch.zeros(0, *parameter.shape)  # type: ignore[attr-defined]


def opacus_noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The noise for a budget, as Opacus finds it; the same for clients of the same size."""
    key = (epsilon, delta, rate, steps)
    if key not in FOUND:
        from opacus.accountants.utils import get_noise_multiplier

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            FOUND[key] = float(
                get_noise_multiplier(
                    target_epsilon=epsilon,
                    target_delta=delta,
                    sample_rate=rate,
                    steps=steps,
                    accountant="rdp",
                    epsilon_tolerance=TOLERANCE * epsilon,
                )
            )
    return FOUND[key]


TOLERANCE = 0.01  # share of epsilon by which the noise may be more than needed
FOUND: dict[tuple[float, float, float, int], float] = {}


def library() -> Any:
    """The package `opacus`, or one sentence on how to get it."""
    try:
        import opacus
        import opacus.optimizers
    except ImportError as error:
        raise UserError(
            'private.level = "example" needs the package opacus: install covey[private]'
        ) from error
    return opacus


def check_model(model: nn.Module) -> None:
    """Layers that mix samples have no gradient of one sample."""
    from opacus.validators import ModuleValidator

    if errors := ModuleValidator.validate(model, strict=False):
        raise UserError(f'private.level is "example", which this model cannot have: {errors[0]}')
