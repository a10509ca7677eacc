"""How good a model is on a client's test data, under noise: how many it gets right of how many, both noisy."""

from typing import ClassVar

import numpy as np
import torch

from covey.core import SHARE, Client, Known, Reply, Stat, Step, Task, step
from covey.errors import Refused
from covey.parts.steps.evaluate import FORWARD_SHARE, outputs_of
from covey.parts.steps.privacy import Privacy, add_noise
from covey.parts.steps.served import Serving, as_sent, served_row
from covey.parts.steps.summaries import booked
from covey.parts.steps.train import Train
from covey.settings import Count, Epsilon

CHANGED = 2.0  # one sample more or less changes both counts by 1


@step(kind="evaluate.noisy")
class NoisyEvaluate(Step):
    """(right + Laplace(2 / epsilon)) / (samples + Laplace(2 / epsilon)) on the client's test data; no loss is told.

    That is noise for one test sample. One training sample can change everything that a model trained or chosen at home
    gets right: a real device scores the one model that it is sent, as it is.

    Args:
        epsilon: privacy loss of one such answer, for one test sample.
        own: whether the client's own model is scored, once it has one.
        adapt: training on its own data before it uses the model.
        updates: how many local updates that training is.
    """

    epsilon: Epsilon
    own: bool = False
    adapt: Train | None = None
    updates: Count = 1

    accounted: ClassVar[bool] = True

    @property
    def serving(self) -> Serving:
        return Serving(own=self.own, adapt=self.adapt, updates=self.updates)

    def __call__(self, client: Client, task: Task) -> Reply:
        if client.live and not as_sent(task, self.serving, client.state, client.bench.layout):
            raise Refused(
                f"{self.kind} has noise for one test sample, and this model would be trained or chosen on training data"
            )
        slot, row = served_row(client, task, self.serving)
        objective, (x, y) = client.bench.objective, client.test.tensors()
        scores = objective.scores(*outputs_of(client, row, x, y)) if len(y) else {}
        # silence would say that there is no sample
        if client.live and not len(y) and objective.main == "accuracy":
            scores = {"accuracy": torch.zeros(0)}
        if "accuracy" not in scores:
            return Reply(id=client.id, slot=slot)
        privacy = Privacy(epsilon=self.epsilon, noise="opendp" if client.live else "simulated")
        spent = booked(client, privacy)
        counts = np.array([float(scores["accuracy"].double().sum()), float(len(y))])
        right, samples = add_noise(counts, sensitivity=CHANGED, privacy=privacy, rng=client.rng)
        size = max(1, round(samples))
        share = float(np.clip(right / size, 0.0, 1.0))
        return Reply(id=client.id, slot=slot, size=1, stats={"accuracy": share, "epsilon": spent})

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        return {"accuracy": SHARE}

    def work(self, train: int, test: int) -> float:
        return FORWARD_SHARE * test + self.serving.work(train, test)
