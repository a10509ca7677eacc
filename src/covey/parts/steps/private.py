"""Training of which only the update leaves the client: no loss, no number of samples; and with noise of its own."""

import math
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from covey.core import Client, Known, Reply, Stat, Step, Task, step
from covey.core.privacy_loss import Loss, Told
from covey.parts.steps.around import AroundStep
from covey.parts.steps.gaussian_noise import gaussian, length
from covey.settings import Positive
from covey.training.rows import Layout


@step(kind="train.quiet")
class Quiet(AroundStep):
    """The step, of whose reply only the row is sent: everybody counts as one, and nobody's loss is told."""

    def __call__(self, client: Client, task: Task) -> Reply:
        reply = self.step(client, task)
        return replace(reply, size=1, stats={})

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        return {}


@step(kind="train.noised")
class Noised(Quiet):
    """The same with noise on the update before it leaves the client: w + min(1, C / ||u||) u + N(0, (z C)^2).

    A real device draws the noise from OpenDP's secure source, a simulation from the client's stream.

    Args:
        clip: C, the longest update.
        noise: z, in clip lengths.
    """

    clip: Positive
    noise: Positive

    accounted: ClassVar[bool] = True

    @property
    def loss(self) -> Loss:
        """What one update costs."""
        return Loss(what="updates", mechanism="local", noise=self.noise)

    def planned(self, samples: int, rounds: int) -> Told:  # noqa: ARG002
        """What a client would tell that trains in so many rounds."""
        return {self.loss: rounds}

    def __call__(self, client: Client, task: Task) -> Reply:
        layout = client.bench.layout
        reply = self.unpacked(super().__call__(client, task), task, layout)
        assert reply.vector is not None
        start = task.models[task.slots.index(reply.slot)]
        if client.account is not None:
            client.account.lose(self.loss)
        rng = None if client.live else client.stream("noise", "round", client.round)
        noisy = gaussian(clipped(reply.vector - start, self.clip), self.noise * self.clip, rng)
        row, home = layout.after_noise((start.double() + noisy).float()), stays_at_home(self.step, layout)
        return replace(reply, vector=row if home is None else row[~home])


def stays_at_home(step: Step, layout: Layout) -> Tensor | None:
    """Which columns of a row stay with the clients of that step; they need no noise. None: all travel."""
    if hasattr(step, "stays"):
        home: Tensor = step.stays(layout)
        return home
    return stays_at_home(step.step, layout) if hasattr(step, "step") else None


def clipped(update: Tensor, clip: float) -> Tensor:
    """The update in float64, shortened to the clip length; one that is not finite is none: no noise would hide it."""
    found = length(update)
    if not math.isfinite(found):
        return torch.zeros_like(update, dtype=torch.float64)
    return update.double() * (1.0 if found <= clip else clip / found)
