"""Covey where whole clients are hidden: no portrait, choice, loss or update of anybody is seen, only noisy sums.

who is alike?               prototypes from noisy sums; each client chooses at home      candidates.py
which models exist?         one per prototype that stands apart, one for everybody included
who works?                  chance alone, which amplifies the guarantee
what does a client do?      trains the model of its choice
how do models combine?      noisy sums over the rows of all models                       privacy/choices.py
what does the server add?   momentum along what these sums have told, which costs nothing more
what does a client use?     the model with the lowest loss on its own data, moved to them as far as held-out data
                            say: decided at home, told to nobody
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from covey.core import Client, Method, Reply, Round, Task, part, step
from covey.core.needs import SEVERAL_MODELS
from covey.core.shows import NOTHING
from covey.parts.selection.plain import Uniform
from covey.parts.serving import ServeHeldOut
from covey.parts.steps.train import AroundTraining, Train
from covey.parts.update.clusters import ClusterCorrection
from covey.privacy.candidates import CANDIDATES, Prototypes, candidate_table, nearest

WORKING = 500  # clients of a round at least, where the fleet has that many: they share the noise


def hiding_clients(method: Method, prototypes: Prototypes) -> Method:
    """The method with the parts that show nobody."""
    train = method.local.train if isinstance(method.local, AroundTraining) else method.local
    if not isinstance(train, Train):
        return method
    per_round = getattr(getattr(method.select, "select", method.select), "per_round", 0)
    send = SendCandidates()
    return replace(
        method,
        group=prototypes,
        bank=one_per_candidate,
        select=Uniform(per_round=max(per_round, WORKING)),
        send=send,
        serve=None if method.adapt is None else ServeHeldOut(send=send),
        local=TrainChosen(train=train),
        update=None if method.update is None else ClusterCorrection(among="everybody"),
        after=(),
    )


@part("bank", "per-candidate", shows=NOTHING, needs=(CANDIDATES,), gives=(SEVERAL_MODELS,))
def one_per_candidate(now: Round) -> Tensor:
    """A row for every model of the prototypes."""
    count = 1 + max(CANDIDATES.of(now.memory)["models"])
    return now.models if len(now.models) else now.fleet.start().expand(count, -1).clone()


@part("send", "candidates", needs=(CANDIDATES, SEVERAL_MODELS), shows=NOTHING)
class SendCandidates:
    """Everybody gets all models and the prototypes, to choose at home."""

    chosen_at_home: ClassVar[bool] = True  # sums over the rows of all models hide who chose which

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        slots, found = tuple(range(len(now.models))), CANDIDATES.of(now.memory)
        args = {"prototypes": np.asarray(found["prototypes"]), "of": list(found["models"])}
        return dict.fromkeys(ids, Task(models=now.models, slots=slots, args=args if len(slots) > 1 else {}))


@step(kind="train.chosen", shows=NOTHING)
class TrainChosen(AroundTraining):
    """Training of the model whose prototype is nearest to the client's own classes."""

    def __call__(self, client: Client, task: Task) -> Reply:
        if len(task.models) == 1:
            return self.train(client, task)
        prototypes = np.asarray(task.args["prototypes"])
        model = int(task.args["of"][nearest(candidate_table(client), prototypes)])
        return self.train(client, Task(models=task.models[model : model + 1], slots=(task.slots[model],)))
