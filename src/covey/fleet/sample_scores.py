"""How good a row is on some test samples, one by one: a simulation looks them up for whoever holds them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from covey.core import Client, Reply, Step, Task
from covey.data.types import Samples
from covey.parts.steps.evaluate import FORWARD_SHARE, outputs_of


@dataclass(frozen=True, kw_only=True)
class SampleScores(Step):
    """Every score of every sample of the task's `index`, seen as the client sees its test data (under its shift).

    With `outputs`, also the model's outputs for each sample, and the targets. Only a simulation asks this.
    """

    outputs: bool = False

    kind: ClassVar[str] = "evaluate.samples"

    def __call__(self, client: Client, task: Task) -> Reply:
        view = client.test
        assert isinstance(view, Samples)
        x, y = Samples(view.dataset, task.args["index"], view.shift).tensors()
        outputs, target = outputs_of(client, task.models[0], x, y)
        scores = client.bench.objective.scores(outputs, target)
        stats: dict[str, Any] = {name: values.numpy() for name, values in scores.items()}
        if self.outputs:
            stats |= {"outputs": outputs.numpy(), "target": target.numpy()}
        return Reply(id=client.id, size=len(y), stats={"part": task.args["part"], "scores": stats})

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        return FORWARD_SHARE * test
