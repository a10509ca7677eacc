"""Local training that also tells, at no cost, whether training on the client's own data helped the client."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from covey.core import KEPT_OUT, Budget, Client, Fact, Known, Reply, Stat, Task, step
from covey.data.together import fold_of
from covey.data.types import View
from covey.parts.steps.at_home import TRIED, score
from covey.parts.steps.evaluate import FORWARD_SHARE, Evaluate
from covey.parts.steps.served import Serving
from covey.parts.steps.train import AroundTraining, Train, best_row, local_fit, reply_of

FOLDS = 10  # a tenth of the samples is kept out, another one in each round
JUDGEMENTS = Fact("judgements of the clients' own training in every reply", 'set local = "judged"')


@step("judged", gives=(JUDGEMENTS,), shows=KEPT_OUT)
class JudgedTrain(AroundTraining):
    """Training as `train` says on nine tenths of the data; the last tenth judges what a client should use.

    The statistics `scores` and `losses` are the main metric and the loss (of classes: a bounded Brier score) on that
    tenth of w + a (v - w) for each a of `TRIED`, w the model as it was received and v as it was trained. The tenth
    changes from round to round, so that no sample is lost to training.
    """

    def privately(self, budget: Budget) -> Train:  # noqa: ARG002
        """Plain training: how good it was stays at home."""
        return self.train

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        part = self.train.training_part(client)
        rest, judging = kept_out(part, client, client.round)
        fit = local_fit(replace(self.train, holdout=0.0), replace(client, train=rest), start)
        reply = reply_of(client, fit, slot, size=len(part))
        if not len(judging):
            return reply
        values = np.array([score(client, torch.lerp(start, fit.row, share), judging) for share in TRIED])
        judged = {"scores": values[:, 0], "losses": values[:, 1], "judged": len(judging)}
        return replace(reply, stats={**reply.stats, **judged})

    def expects(self, known: Known) -> dict[str, Stat]:
        several = (len(TRIED),)
        # With some samples kept out the epochs that suit the client may be more than those for all of them.
        return {
            **replace(self.train, epochs=self.train.epochs_for(1)).expects(known),
            "scores": Stat(shape=several, optional=True),
            "losses": Stat(low=known.lowest_loss, shape=several, optional=True),
            "judged": Stat(low=1, high=known.train, whole=True, optional=True),
        }

    def work(self, train: int, test: int) -> float:
        return self.train.work(train - train // FOLDS, test) + FORWARD_SHARE * len(TRIED) * (train // FOLDS)


def kept_out(part: View, client: Client, number: int) -> tuple[View, View]:
    """What is trained on in round `number`, and what judges: after a shuffle that never changes, every tenth sample.

    Where rows belong together (`data.together`), a tenth of the units judges, the same ones at all clients.
    """
    folds = fold_of(part, FOLDS, client.seed, "judging")
    if folds is not None:
        held = folds == number % FOLDS
        held &= not held.all()
        return part.select(np.flatnonzero(~held)), part.select(np.flatnonzero(held))
    order = client.stream("judging").permutation(len(part))
    judging = np.zeros(len(part), bool)
    if len(part) > 1:
        judging[order[number % min(FOLDS, len(part)) :: FOLDS]] = True
    return part.select(np.flatnonzero(~judging)), part.select(np.flatnonzero(judging))


@step(kind="evaluate.adapted")
class EvaluateAdapted(Evaluate):
    """Like `Evaluate`, after the client made the model its own: w + a (v - w), v trained from w.

    a is the task's argument `own`; without it, 1. v is trained by `updates` local updates, one after the other. The
    trained model stays with the client.
    """

    train: Train
    updates: int = 1

    one_pass: ClassVar[bool] = False

    @property
    def serving(self) -> Serving:
        return Serving(adapt=self.train, updates=self.updates)

    def work(self, train: int, test: int) -> float:
        return self.serving.work(train, test) + super().work(train, test)
