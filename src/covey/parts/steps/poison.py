"""Hostile clients for a simulation: what they send is not what they trained."""

from dataclasses import replace
from typing import Annotated, Literal

import torch

from covey.core import Client, Facts, Known, Reply, Stat, Step, Task, gives_of, step
from covey.settings import Range

Poison = Literal["scale", "flip", "nan"]


@step(kind="train.poisoned")
class Poisoned(Step):
    """The step `local`, except that some clients spoil their update w_k - w before they send it.

    scale: times `factor`. flip: times -1. nan: one number of the row is not a number.
    """

    local: Step
    clients: tuple[int, ...]
    attack: Poison
    factor: Annotated[float, Range(-1e38, 1e38)] = 1000.0  # what a float32 holds

    @property
    def gives(self) -> Facts:
        return gives_of(self.local)

    def __call__(self, client: Client, task: Task) -> Reply:
        reply = self.local.unpacked(self.local(client, task), task, client.bench.layout)
        if client.id not in self.clients or reply.vector is None:
            return reply
        if self.attack == "nan":
            row = reply.vector.clone()
            row[0] = torch.nan
            return replace(reply, vector=row)
        start = task.models[task.slots.index(reply.slot)]
        times = self.factor if self.attack == "scale" else -1.0
        return replace(reply, vector=start + times * (reply.vector - start))

    def expects(self, known: Known) -> dict[str, Stat]:
        """What the step itself tells."""
        return self.local.expects(known)

    def work(self, train: int, test: int) -> float:
        return self.local.work(train, test)
