"""The bench that runs small models with the fast CPU trainer: the only file that knows the package `lanes`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from covey.errors import RunError
from covey.training.bench.base import Batches, Fit, FitCohort, More, Recipe
from covey.training.bench.clipping import Clipping
from covey.training.bench.cohort import Data, refusal
from covey.training.bench.torch_bench import TorchBench
from covey.training.bench.turns import aside
from covey.training.objective import Objective
from covey.training.rows import Layout
from lanes import LanesError, Plan, Trainer, Work, ensure_built, host, object_files, plan
from lanes import Refusal as Refusal  # for `choose`

Say = Callable[[str], None]


def plans_for(
    model: nn.Module, input_shape: tuple[int, ...], objective: Objective, say: Say | None
) -> dict[str, Plan] | Refusal:
    """What trains the model with each optimiser, compiled; or why lanes does not support it."""
    plans: dict[str, Plan] = {}
    for name in ("sgd", "adam"):
        planned = plan(model, input_shape, objective.kernel, name)  # type: ignore[arg-type]
        if isinstance(planned, Refusal):
            return planned
        plans[name] = planned
    try:
        for planned in plans.values():
            planned.compile(say)
    except LanesError as error:
        raise RunError(str(error)) from error
    return plans


def compile_kernels(say: Say | None = None) -> None:
    """Has the kernels compiled ahead of time; what is wrong with them is said when they are used."""
    with suppress(ImportError, LanesError, OSError):
        ensure_built(host(), say)


def is_compiled() -> bool:
    """Whether the kernels for this machine are there."""
    try:
        return all(path.exists() for path in object_files(host()).values())
    except (ImportError, LanesError, OSError):
        return False


def instruction_set() -> str:
    """The vector instructions that lanes uses on this machine."""
    try:
        return host().name
    except ImportError:
        return "none"


class LanesBench:
    """Trainers of one thread, one for each optimiser; the plans are shared by all threads."""

    def __init__(
        self, plans: Mapping[str, Plan], layout: Layout, objective: Objective, model: nn.Module
    ) -> None:
        self.plans = plans
        self.model = model
        self._torch: TorchBench | None = None
        self.layout = layout
        self.objective = objective
        self.trainers: dict[str, Trainer] = {}

    def trainer(self, optimiser: str) -> Trainer:
        """The trainer for an optimiser, made when it is first asked for."""
        if optimiser not in self.trainers:
            self.trainers[optimiser] = self.plans[optimiser].trainer(aside)
        return self.trainers[optimiser]

    def fit(
        self, row: Tensor, x: Tensor, y: Tensor, batches: Batches, recipe: Recipe, **more: Unpack[More]
    ) -> Fit:
        """Trains from `row` on the batches in their order; PyTorch does so for any other optimiser than these two."""
        if recipe.optimiser not in tuple(self.plans) or not recipe.plain:
            return self.on_torch().fit(row, x, y, batches, recipe, **more)
        fit, work = self._ready(row, x, y, batches, recipe, **more)
        self.trainer(recipe.optimiser).do([work])
        return fit

    def _ready(
        self, row: Tensor, x: Tensor, y: Tensor, batches: Batches, recipe: Recipe, **more: Unpack[More]
    ) -> tuple[Fit, Work]:
        """The same, to be filled when the work is done."""
        linear, velocity = more.get("linear"), more.get("velocity")
        trained = row.numpy().copy()
        keeps = recipe.optimiser == "sgd" and recipe.momentum > 0
        speed = np.zeros(self.layout.trainable, np.float32) if keeps else None
        if keeps and velocity is not None:
            speed = velocity.numpy().copy()
        work = self.trainer(recipe.optimiser).ready(
            trained,
            x.numpy(),
            self.objective.target(x, y).numpy(),
            list(batches),
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            prox=recipe.prox,
            linear=linear.numpy() if linear is not None else None,
            velocity=speed,
            clip=recipe.clip,
            dropout_seed=more["seed"],
        )
        kept = torch.from_numpy(speed) if speed is not None else None
        return Fit(row=torch.from_numpy(trained), losses=work.losses, velocity=kept), work

    def fit_clipped(
        self, row: Tensor, x: Tensor, y: Tensor, batches: Batches, recipe: Recipe, clipping: Clipping
    ) -> Tensor:
        """The lengths of a batch's gradients, each in its lane, then a step in which they count accordingly.

        Where one is not finite, which a server can make of a certain sample alone, PyTorch adds the others up.
        """
        if recipe.optimiser != "sgd" or self.plans["sgd"].no_lengths:
            return self.on_torch().fit_clipped(row, x, y, batches, recipe, clipping)
        trainer, size = self.trainer("sgd"), self.layout.trainable
        values, answers = x.numpy(), self.objective.target(x, y).numpy()
        trained, start = row.numpy().copy(), row[:size].numpy()
        speed = np.zeros(size, np.float32) if recipe.momentum else None
        for number, batch in enumerate(batches):
            noise = clipping.noise() / clipping.expected
            if recipe.prox:
                noise = noise + recipe.prox * (trained[:size] - start)
            part, told = np.ascontiguousarray(values[batch]), np.ascontiguousarray(answers[batch])
            seed = clipping.seed + number
            lengths = trainer.lengths(trained, part, told, dropout_seed=seed) if len(batch) else np.zeros(0)
            if not len(batch) or not np.isfinite(lengths).all():
                at, drawn, target = (torch.from_numpy(array) for array in (trained, part, told))
                found = np.zeros(size)
                if len(batch):
                    found = self.on_torch().clipped_sum(at, drawn, target, clipping.clip, seed)
                step_alone(trained[:size], found / clipping.expected + noise, recipe, speed)
                continue
            weights = clipping.factors(lengths.astype(np.float64)) * (len(batch) / clipping.expected)
            trainer.fit(
                trained,
                part,
                told,
                [np.arange(len(part))],
                lr=recipe.lr,
                momentum=recipe.momentum,
                weight_decay=recipe.weight_decay,
                linear=noise.astype(np.float32),
                velocity=speed,
                clip=recipe.clip,
                dropout_seed=seed,
                weights=weights.astype(np.float32),
            )
        return torch.from_numpy(trained)

    def cohort(self, recipe: Recipe) -> FitCohort | None:
        """One after another, with the bits that `fit` has; dropout would need a seed for each."""
        return None if refusal(self.model, recipe) else partial(self._fit_each, recipe)

    def _fit_each(
        self, recipe: Recipe, rows: Sequence[Tensor], data: Data, batches: Sequence[Batches]
    ) -> list[Fit]:
        every = zip(rows, data, batches, strict=True)
        fits, works = zip(
            *[self._ready(row, x, y, own, recipe, seed=0) for row, (x, y), own in every], strict=True
        )
        self.trainer(recipe.optimiser).do(works)
        return list(fits)

    def forward(self, row: Tensor, x: Tensor) -> Tensor:
        """The outputs for all of `x`, in evaluation mode."""
        return torch.from_numpy(self.trainer("sgd").forward(row.contiguous().numpy(), x.contiguous().numpy()))

    def on_torch(self) -> TorchBench:
        """The same model under PyTorch, made when it is first asked for."""
        if self._torch is None:
            why = "a loss or an optimiser of its own"
            self._torch = TorchBench(self.model, self.objective, buffers=self.layout.buffers, why=why)
        return self._torch

    def info(self) -> dict[str, Any]:
        return self.plans["sgd"].info()


def step_alone(row: np.ndarray, gradient: np.ndarray, recipe: Recipe, speed: np.ndarray | None) -> None:
    """One step of SGD along a gradient that is known already, in place; rounded where lanes round."""
    lr, momentum, decay = np.array([recipe.lr, recipe.momentum, recipe.weight_decay], np.float32).astype(
        np.float64
    )
    known = gradient.astype(np.float32)
    if recipe.clip is not None:
        known *= np.float32(min(1.0, recipe.clip / (float(np.linalg.norm(known)) + 1e-6)))
    known = (known + decay * row).astype(np.float32)
    if speed is not None:
        speed[:] = known = (momentum * speed + known).astype(np.float32)
    row[:] = row - lr * known
