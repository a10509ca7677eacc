"""Training of which only the update leaves the client: no loss, no number of samples; and with noise of its own."""

import math
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from covey.core import Client, Known, Reply, Stat, Step, Task, step
from covey.core.privacy_loss import Loss, Told
from covey.errors import Refused
from covey.parts.steps.around import AroundStep
from covey.parts.steps.gaussian_noise import gaussian, length
from covey.settings import ClipLength, Positive
from covey.training.rows import Layout


@step(kind="train.quiet")
class Quiet(AroundStep):
    """A step whose reply holds the row alone: everybody counts as one, and nobody's loss is told."""

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

    clip: ClipLength
    noise: Positive

    accounted: ClassVar[bool] = True

    @property
    def loss(self) -> Loss:
        """What one update costs."""
        return Loss(what="updates", mechanism="local", noise=self.noise)

    def planned(self, samples: int, rounds: int) -> Told:  # noqa: ARG002
        """What a client that trains in that many rounds would tell."""
        return {self.loss: rounds}

    def __call__(self, client: Client, task: Task) -> Reply:
        layout = client.bench.layout
        try:
            reply = self.unpacked(super().__call__(client, task), task, layout)
        except Exception as error:
            reply = unmoved(client, task, error)
        assert reply.vector is not None
        start = task.models[task.slots.index(reply.slot)]
        if client.account is not None:
            client.account.lose(self.loss)
        rng = None if client.live else client.stream("noise", "round", client.round)
        noisy = gaussian(clipped(reply.vector - start, self.clip), self.noise * self.clip, rng)
        row, home = layout.after_noise((start.double() + noisy).float()), stays_at_home(self.step, layout)
        return replace(reply, vector=row if home is None else row[~home])


def unmoved(client: Client, task: Task, error: Exception) -> Reply:
    """The reply of a client whose work failed where nobody may learn of it: no update, hidden by the noise.

    Whether work fails can depend on a single sample, and a server can see to it that it does. Elsewhere, and where time
    was up or a rule was broken, the error is raised.
    """
    unsaid = None if client.account is None else client.account.unsaid
    if unsaid is None or isinstance(error, Refused) or not len(task.models):
        raise error
    unsaid(f"the training failed ({type(error).__name__}: {error}); noise alone is told")
    return Reply(id=client.id, vector=task.models[0].clone(), slot=task.slots[0], size=1)


def stays_at_home(step: Step, layout: Layout) -> Tensor | None:
    """Which columns of a row stay with the clients of that step; they need no noise. None: all travel."""
    if hasattr(step, "stays"):
        home: Tensor = step.stays(layout)
        return home
    return stays_at_home(step.step, layout) if hasattr(step, "step") else None


def clipped(update: Tensor, clip: float) -> Tensor:
    """The update in float64, shortened to the clip length; one that is not finite becomes 0: no noise would hide it."""
    found = length(update)
    if not math.isfinite(found):
        return torch.zeros_like(update, dtype=torch.float64)
    return update.double() * (1.0 if found <= clip else clip / found)
