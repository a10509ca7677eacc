"""Training of which only the update leaves the client: no loss, no number of samples; and with noise of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from covey.core import Client, Reply, Step, Task
from covey.needs import Facts, gives_of
from covey.statistics import Known, Stat
from covey.steps.train import Train


@dataclass(frozen=True, kw_only=True)
class Quiet(Step):
    """The step, of whose reply only the row is sent: everybody counts as one, and nobody's loss is told."""

    step: Step

    kind: ClassVar[str] = "train.quiet"

    def __call__(self, client: Client, task: Task) -> Reply:
        reply = self.step(client, task)
        return replace(reply, size=1, stats={})

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        return {}

    def work(self, train: int, test: int) -> float:
        return self.step.work(train, test)

    @property
    def train(self) -> Train | None:
        """The plain training behind it, for whoever fine-tunes."""
        return self.step if isinstance(self.step, Train) else getattr(self.step, "train", None)

    @property
    def gives(self) -> Facts:
        return tuple(gives_of(self.step))
