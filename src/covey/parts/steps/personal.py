"""A model of the client's own beside the common one (Ditto), and how it is measured."""

from dataclasses import replace
from typing import ClassVar

from torch import Tensor

from covey.core import NOTHING, Client, Reply, Task, step
from covey.parts.steps.evaluate import Evaluate
from covey.parts.steps.served import TRAINED_MODEL, Serving
from covey.parts.steps.stepwise import is_finite
from covey.parts.steps.train import AroundTraining, Train, best_row, local_fit, reply_of
from covey.settings import NotNegative
from covey.training.bench import Fit


def fit_near(train: Train, client: Client, own: Tensor, common: Tensor, pull: float) -> Fit:
    """Trains `own`, a model v, on F_k(v) + (pull / 2) ||v - common||^2."""
    # The step's pull is towards where it starts: the difference to the common model is a constant gradient.
    rest = pull * (own - common)[: client.bench.layout.trainable]
    return local_fit(replace(train, prox=pull), client, own, linear=rest)


@step("ditto", gives=(TRAINED_MODEL,), shows=NOTHING)
class DittoTrain(AroundTraining):
    """Trains the common model w, and then the client's own v on F_k(v) + (pull / 2) ||v - w||^2 (Li et al., 2021).

    w is the model as it was received, v starts from it. v never leaves the client, and is what it uses.

    Args:
        pull: how strongly the own model is held to the common one (the paper's lambda); 0: not at all.
    """

    pull: NotNegative = 0.1

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, common = best_row(client, task)
        fit = local_fit(self.train, client, common)
        personal = fit_near(self.train, client, client.state.get("own", common), common, self.pull)
        if is_finite(personal.row):
            client.state["own"] = personal.row
        return reply_of(client, fit, slot, size=len(self.train.training_part(client)))

    def work(self, train: int, test: int) -> float:
        return 2 * self.train.work(train, test)


@step(kind="evaluate.own")
class EvaluateOwn(Evaluate):
    """Like `Evaluate`, of the client's own model; a client without one uses the one that was sent."""

    one_pass: ClassVar[bool] = False

    @property
    def serving(self) -> Serving:
        return Serving(own=True)
