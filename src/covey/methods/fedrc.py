"""FedRC: tackling diverse distribution shifts by robust clustering (Guo et al., 2024)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from covey.core import Client, Fact, Key, Method, Mixing, Reply, Round, Task, method, part, step
from covey.core.needs import SEVERAL_MODELS
from covey.core.reply_schema import Known, Stat
from covey.core.shows import FIT_OF_MODELS
from covey.errors import UserError
from covey.methods.ifca import RandomStarts
from covey.parts.mix.average import weighted_rows
from covey.parts.selection.plain import Uniform
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.train import AroundTraining, Train, local_fit, reply_of, with_own_buffers
from covey.settings import Count
from covey.training.bench import LossFunction

TURN = Fact("the model whose turn it is", 'set send = "in-turn"')
MASS = Fact("how much of each label every model explains in every reply", 'set local = "responsible"')
LABELS: Key[dict[int, Any]] = Key("fedrc.mass", 'add "label-mass" to after')  # client -> [models, labels]


def responsibilities(
    losses: Tensor, mixture: np.ndarray, labels: np.ndarray, share: np.ndarray
) -> np.ndarray:
    """gamma_jk ~ omega_k exp(-f_jk) / C(y_j; k), [models, samples], adding up to 1 over the models.

    f_jk is sample j's loss by model k, omega the client's mixture, C(y; k) the share of label y in what model k
    explains: dividing by it keeps clients with other labels, but the same concept, in one cluster.
    """
    log = np.log(np.maximum(mixture, 1e-12))[:, None] - losses.double().numpy()
    log = log - np.log(np.maximum(share[:, labels], 1e-12))
    gamma = np.exp(log - log.max(axis=0))
    return np.asarray(gamma / gamma.sum(axis=0))


@step("responsible", needs=(TURN,), gives=(MASS,), shows=FIT_OF_MODELS)
class ResponsibleTrain(AroundTraining):
    """Trains the model whose turn it is on all samples, each weighted by how far that model explains it (FedRC).

    The client's mixture omega is the mean of gamma over its samples and stays at home; the reply tells how much of each
    label every model explains.
    """

    def __call__(self, client: Client, task: Task) -> Reply:
        classes = len(client.train.dataset.classes)
        if not classes:
            raise UserError("method fedrc weighs samples by their labels, but the data set has no classes")
        rows = [with_own_buffers(client, row) for row in task.models]
        part = self.train.training_part(client)
        x, y = part.tensors()
        labels = y.numpy().astype(np.int64)
        objective = client.bench.objective
        losses = torch.stack([objective.scores(client.bench.forward(row, x), y)["loss"] for row in rows])
        even = np.full((len(rows), classes), 1 / classes)
        share = np.asarray(task.args.get("share", even))
        mixture = np.asarray(client.state.get("fedrc", np.full(len(rows), 1 / len(rows))))
        gamma = responsibilities(losses, mixture, labels, share)
        client.state["fedrc"] = gamma.mean(axis=1)
        turn = int(task.args["turn"])
        weight = torch.from_numpy(gamma[turn]).float()

        def loss(_: Tensor) -> LossFunction:
            def of(model: nn.Module, inputs: Tensor, target: Tensor, index: Tensor) -> Tensor:
                each = objective.scores(model(inputs), target)["loss"]
                return (each * weight[index.cpu()].to(each.device)).mean()

            return of

        fit = local_fit(replace(self.train, batches=None), client, rows[turn], loss=loss)
        mass = np.stack([np.bincount(labels, weights=one, minlength=classes) for one in gamma])
        reply = reply_of(client, fit, task.slots[turn], size=len(part))
        return replace(reply, stats={**reply.stats, "mass": mass})

    def expects(self, known: Known) -> dict[str, Stat]:
        mass = Stat(low=0.0, high=float(known.train), shape=(known.models, known.classes))
        return replace(self.train, batches=None).expects(known) | {"mass": mass}

    def work(self, train: int, test: int) -> float:
        return replace(self.train, batches=None).work(train, test) + 4 * FORWARD_SHARE * train


@part("send", "in-turn", needs=(SEVERAL_MODELS, LABELS), gives=(TURN,), shows=FIT_OF_MODELS)
class ModelsInTurn:
    """Everybody gets all models, whose turn it is, and the share of each label in what every model explains."""

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        args: dict[str, Any] = {"turn": (now.number - 1) % len(now.models)}
        if known := LABELS.get(now.memory, {}):
            total = np.sum([np.asarray(one) for one in known.values()], axis=0) + 1e-3
            args["share"] = total / total.sum(axis=1, keepdims=True)
        return dict.fromkeys(ids, Task(models=now.models, slots=tuple(range(len(now.models))), args=args))


@part("mix", "by-mass", needs=(MASS,), shows=FIT_OF_MODELS)
class ByMass:
    """The model whose turn it was is averaged by how many samples of each client it explains."""

    def __call__(self, now: Round) -> Mixing:
        explained = [float(np.asarray(reply.stats["mass"])[reply.slot].sum()) for reply in now.replies]
        return Mixing(factors=[weighted_rows(now, np.maximum(explained, 1e-6))])


@part("after", "label-mass", shows=FIT_OF_MODELS, needs=(MASS,), gives=(LABELS,))
def remember_mass(now: Round) -> None:
    """Keeps what every client's labels are explained by; a client belongs to the model that explains most of it."""
    told = {reply.id: np.asarray(reply.stats["mass"], float) for reply in now.replies}
    LABELS.keep(now.memory, LABELS.get(now.memory, {}) | told)
    now.groups |= {i: int(mass.sum(axis=1).argmax()) for i, mass in told.items()}


@method("fedrc", family="clusters", paper="https://arxiv.org/abs/2301.12379")
def fedrc(train: Train, *, per_round: Count = 10, k: Count = 3) -> Method:
    """`k` models for `k` concepts: samples count in a model by how far it explains them, whatever their labels are.

    gamma ~ omega_k exp(-loss) / C(y; k), C the share of the label in what model k explains: clients with other labels
    but the same concept share a model, clients with another concept do not (Guo et al., 2024). The models are trained
    in turn, one per round, so that a round costs what one of FedAvg does, and averaged by how many samples of each
    client they explain; the authors train all in every round and average by samples. A client uses the best of them.

    Args:
        k: how many models.
    """
    return Method(
        name="fedrc",
        bank=RandomStarts(k=k, asked=per_round),
        select=Uniform(per_round=per_round),
        send=ModelsInTurn(),
        local=ResponsibleTrain(train=train),
        mix=ByMass(),
        after=(remember_mass,),
    )
