"""A step around another step: it does something with what that one is sent, or with what it replies."""

from dataclasses import dataclass
from typing import Any

from covey.core import Known, Reply, Stat, Step, Task, like
from covey.training.rows import Layout


@dataclass(frozen=True, kw_only=True)
class AroundStep(Step):
    """Needs, gives, tells and costs what the step inside does.

    Args:
        step: what the client does.
    """

    step: Step

    needs, gives = like("step")

    @property
    def train(self) -> Any:
        """The plain training behind it."""
        return getattr(self.step, "train", self.step)

    def unpacked(self, reply: Reply, task: Task, layout: Layout) -> Reply:
        return self.step.unpacked(reply, task, layout)

    def spared(self, layout: Layout) -> int:
        return self.step.spared(layout)

    def expects(self, known: Known) -> dict[str, Stat]:
        return self.step.expects(known)

    def work(self, train: int, test: int) -> float:
        return self.step.work(train, test)
