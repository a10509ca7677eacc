"""The bench that runs any `nn.Module` with PyTorch."""

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Self, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from covey.training.bench.base import Batches, Fit, FitCohort, LossFunction, More, Precision, Recipe
from covey.training.bench.clipping import ClippedSums, Clipping, check_apart
from covey.training.bench.cohort import Gradients, Stacking, fit_cohort, refusal
from covey.training.bench.freed_memory import keep_freed_memory
from covey.training.bench.optimisers import rule_for
from covey.training.frozen import copy_sharing, frozen_norms, is_frozen_buffer
from covey.training.objective import Objective, mixes_samples
from covey.training.rows import BufferPolicy, Layout, activations, flatten

# Samples per forward pass: at most 1000, and fewer where a model's activations would take more than this many bytes.
# It depends on the model only, so that results do not depend on who else is evaluated.
FORWARD_SAMPLES = 1000
FORWARD_BYTES = 64_000_000


def forward_samples(model: nn.Module, sample: Tensor) -> int:
    """How many samples go through the model at a time."""
    return max(1, min(FORWARD_SAMPLES, FORWARD_BYTES // (4 * max(1, activations(model, sample)))))


def takes_channels_last(model: nn.Module, sample: Tensor) -> bool:
    """Whether pictures may lie with their channels next to one another, which makes convolutions on a processor faster.

    A model that views its values in another shape, rather than reshaping them, refuses it.
    """
    if sample.dim() != 4 or sample.device.type != "cpu":
        return False
    try:
        model(sample.expand(2, -1, -1, -1).contiguous(memory_format=torch.channels_last))
    except RuntimeError:
        return False
    return True


# Dropout draws from torch's one generator, so two threads must not train at the same time; processes may.
ONE_AT_A_TIME = threading.Lock()


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's generator under a seed for a while (`torch.manual_seed` does the same 100 times slower)."""
    generator = (
        torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else torch.default_generator
    )
    before = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(before)


class TorchBench:
    """Holds one copy of the model, flat, so that loading and updating are single operations."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        *,
        buffers: BufferPolicy = "average",
        device: str = "cpu",
        why: str = "",
        stacking: Stacking | None = None,
    ) -> None:
        self.model = copy_sharing(model).to(device)
        self.layout = Layout.of(self.model, buffers)
        self.objective = objective
        self.device = torch.device(device)
        if self.device.type == "cpu":
            keep_freed_memory()
        self.why = why
        self.stacking = stacking or Stacking()
        self.gradients: Gradients | None = None  # of a cohort, made when one is first trained
        self.at_a_time: int | None = None  # samples per forward pass, found out with the first one
        self.memory_format = torch.contiguous_format  # of pictures in a forward pass, found out as well
        self.clipped: tuple[TorchBench, ClippedSums] | None = None  # made when it is first asked for
        self.flat, self.gradient = flatten(self.model)
        self.parameters = self.flat[: self.layout.trainable]
        self.frozen_norms = frozen_norms(self.model)
        self.model.train()
        self._rest_frozen_norms()
        # Integer buffers restart with every load: no row carries them.
        self.counters = [
            (buffer, buffer.clone())
            for name, buffer in self.model.named_buffers()
            if not buffer.is_floating_point() and not is_frozen_buffer(self.model, name)
        ]

    def load(self, row: Tensor, *, training: bool) -> None:
        """Puts a row into the model."""
        self.flat.copy_(row)
        for buffer, first in self.counters:
            buffer.copy_(first)
        if (
            self.model.training != training
        ):  # switching walks through all layers, which small models would feel
            self.model.train(training)
            self._rest_frozen_norms()

    def _rest_frozen_norms(self) -> None:
        """Statistics that are frozen are used as they are, and not those of a batch."""
        for module in self.frozen_norms:
            module.eval()

    def fit(
        self, row: Tensor, x: Tensor, y: Tensor, batches: Batches, recipe: Recipe, **more: Unpack[More]
    ) -> Fit:
        """Trains from `row` on the batches in their order."""
        linear, loss_of, seconds = more.get("linear"), more.get("loss_of"), more.get("seconds")
        self.load(row, training=True)
        x = x.to(self.device)
        target = self.objective.target(x, y.to(self.device))
        start = self.parameters.clone() if recipe.prox else None
        linear = linear.to(self.device) if linear is not None else None
        step = rule_for(self.parameters, recipe, more.get("velocity"))
        losses: list[Tensor] = []
        until = math.inf if seconds is None else time.monotonic() + seconds
        with ONE_AT_A_TIME, seeded(more["seed"], self.device):
            for first in range(0, len(batches), recipe.accumulate):
                if losses and time.monotonic() > until:
                    break
                self.gradient.zero_()
                losses += self._gradients(
                    batches[first : first + recipe.accumulate], x, target, recipe.precision, loss_of
                )
                if linear is not None:
                    self.gradient.add_(linear)
                if start is not None:
                    self.gradient.add_(self.parameters - start, alpha=recipe.prox)
                if recipe.clip is not None:
                    self.gradient.mul_(min(1.0, recipe.clip / (float(self.gradient.norm()) + 1e-6)))
                step(self.gradient)
        return Fit(
            row=self.flat.to("cpu", copy=True),
            losses=torch.stack(losses).double().cpu().numpy() if losses else np.zeros(0),
            velocity=step.velocity.cpu() if step.velocity is not None else None,
        )

    def _gradients(
        self, batches: Batches, x: Tensor, target: Tensor, precision: Precision, loss_of: LossFunction | None
    ) -> list[Tensor]:
        """Adds to the gradient that of the mean over all samples of the batches, and gives each batch's loss."""
        losses, samples = [], sum(len(batch) for batch in batches)
        for batch in batches:
            index = torch.from_numpy(batch).to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                outputs = self.model(x[index]) if loss_of is None else None
            if outputs is not None:
                loss = self.objective.loss(outputs.float(), target[index])
            else:
                assert loss_of is not None
                loss = loss_of(self.model, x[index], target[index], index)
            share = len(batch) / samples
            (loss if share == 1 else share * loss).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return losses

    def fit_clipped(
        self, row: Tensor, x: Tensor, y: Tensor, batches: Batches, recipe: Recipe, clipping: Clipping
    ) -> Tensor:
        """Trains on sums of gradients that Opacus clips; on a copy of the model, which keeps Opacus' hooks."""
        bench, sums = self.with_opacus()
        bench.load(row, training=True)
        x = x.to(self.device)
        target = self.objective.target(x, y.to(self.device))
        start = bench.parameters.clone()
        step = rule_for(bench.parameters, recipe, None)
        with ONE_AT_A_TIME, seeded(clipping.seed, self.device):
            for batch in batches:
                index = torch.from_numpy(batch).to(self.device)
                gradient = sums(self.objective, x[index], target[index], clipping.clip)
                noise = torch.from_numpy(clipping.noise()).to(gradient)
                gradient = (gradient + noise) / clipping.expected
                if recipe.prox:
                    gradient.add_(bench.parameters - start, alpha=recipe.prox)
                if recipe.clip is not None:
                    gradient.mul_(min(1.0, recipe.clip / (float(gradient.norm()) + 1e-6)))
                step(gradient)
        return bench.flat.to("cpu", copy=True).detach()

    def with_opacus(self) -> "tuple[TorchBench, ClippedSums]":
        """A copy of the model, which keeps Opacus' hooks, and what makes sums of clipped gradients of it."""
        if self.clipped is None:
            check_apart(self.model, self.objective)
            copied = TorchBench(
                self.model, self.objective, buffers=self.layout.buffers, device=str(self.device)
            )
            self.clipped = copied, ClippedSums(copied.model)
        return self.clipped

    def clipped_sum(self, row: Tensor, x: Tensor, target: Tensor, clip: float, seed: int) -> np.ndarray:
        """The sum of the samples' clipped gradients at `row`; `seed` is of dropout."""
        bench, sums = self.with_opacus()
        bench.load(row, training=True)
        with ONE_AT_A_TIME, seeded(seed, self.device):
            return sums(self.objective, x.to(self.device), target.to(self.device), clip).cpu().numpy()

    def cohort(self, recipe: Recipe) -> FitCohort | None:
        """Trains many clients at once with stacked parameters, where the model has no state of its own."""
        apart = mixes_samples(self.objective) or refusal(self.model, recipe)
        return None if apart else partial(fit_cohort, self, recipe)

    def forward(self, row: Tensor, x: Tensor) -> Tensor:
        """The outputs for all of `x`, in evaluation mode."""
        self.load(row, training=False)
        with torch.inference_mode():
            if self.at_a_time is None:
                sample = x[:1].to(self.device)
                self.at_a_time = forward_samples(self.model, sample)
                if takes_channels_last(self.model, sample):
                    self.memory_format = torch.channels_last
            passed = [
                self.model(part.to(self.device, memory_format=self.memory_format)).cpu()
                for part in torch.split(x, self.at_a_time)
            ]
        return torch.cat(passed)  # out of inference mode: a tensor like any other

    def on_torch(self) -> Self:
        return self

    def info(self) -> dict[str, str | int]:
        return {"trainer": "torch", "device": str(self.device), "why": self.why}
