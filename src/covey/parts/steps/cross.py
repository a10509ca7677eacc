"""CAFA's cross-evaluation: how good are the others' models on a client's own data?"""

from dataclasses import replace

import numpy as np

from covey.core import SHARE, Client, Known, Reply, Stat, Step, Task, step
from covey.errors import UserError
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.train import split, validation_size, with_own_buffers


@step(kind="evaluate.cross")
class CrossEvaluate(Step):
    """Accuracy of each of the task's rows on the part of the client's data that `holdout` keeps out of training.

    The data are gathered once, and every row passes over all of them in large batches, in evaluation mode.
    `models` is the number of rows, from which the work follows. `by_class`: tell the hits in each class and how many
    samples of it there are, in place of the accuracy.
    """

    holdout: float
    models: int
    by_class: bool = False

    def __call__(self, client: Client, task: Task) -> Reply:
        x, y = split(client, self.holdout)[1].tensors()
        hits = np.zeros((len(task.models), len(y)))
        for place, row in enumerate(task.models if len(y) else ()):
            outputs = client.bench.forward(with_own_buffers(client, row), x)
            scores = client.bench.objective.scores(outputs, client.bench.objective.target(x, y))
            if "accuracy" not in scores:
                raise UserError(
                    f"this method weighs models by accuracy, but the objective knows only {', '.join(scores)}; "
                    "allowed: classification"
                )
            hits[place] = scores["accuracy"].double().numpy()
        if self.by_class:
            of_class = np.eye(len(client.train.dataset.classes))[y.numpy()]
            return Reply(
                id=client.id, size=len(y), stats={"hits": hits @ of_class, "labels": of_class.sum(axis=0)}
            )
        accuracy = hits.mean(axis=1) if len(y) else np.zeros(len(hits))
        return Reply(id=client.id, size=len(y), stats={"accuracy": accuracy})

    def expects(self, known: Known) -> dict[str, Stat]:
        if self.by_class:
            counts = Stat(low=0.0, high=known.most, shape=(known.classes or None,))
            return {"labels": counts, "hits": replace(counts, shape=(self.models, *counts.shape))}
        return {"accuracy": replace(SHARE, shape=(self.models,))}

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        """One forward pass over the validation part for every model."""
        return FORWARD_SHARE * self.models * validation_size(train, self.holdout)
