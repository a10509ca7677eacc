"""SCAFFOLD: stochastic controlled averaging for federated learning (Karimireddy et al., 2020)."""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from covey.core import Client, Fact, Key, Known, Method, Reply, Round, Shows, Task, method, part, step
from covey.core.needs import ONE_MODEL
from covey.core.reply_schema import Stat
from covey.core.shows import AT_THE_SERVER
from covey.errors import UserError
from covey.methods.baselines import random
from covey.parts.banks import ModelWith
from covey.parts.mix.average import Weighting
from covey.parts.steps.train import AroundTraining, Train, best_row, local_fit, reply_of
from covey.settings import Count

CONTROLS = Fact("control variates in every reply", 'set local = "controlled"')
CONTROL: Key[Tensor] = Key("scaffold.control", 'add "controls" to after')
SHOWS_CONTROLS = Shows(what="a control variate of every client", instead=AT_THE_SERVER)


@step("controlled", gives=(CONTROLS,), shows=SHOWS_CONTROLS)
class ControlledTrain(AroundTraining):
    """Training whose gradients are corrected by control variates: v <- v - lr (g - c_k + c).

    Afterwards c_k <- c_k - c + (w - v) / (K lr) over its K steps (option II); the reply holds by how much c_k changed.
    """

    def __post_init__(self) -> None:
        if self.train.optimiser != "sgd" or self.train.momentum:
            raise UserError(
                "control variates need plain steps: set train.optimiser = sgd, train.momentum = 0"
            )

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        nothing = torch.zeros(client.bench.layout.trainable)
        common, own = task.args.get("control", nothing), client.state.get("control", nothing)
        fit = local_fit(self.train, client, start, linear=common - own)
        way = len(fit.losses) * self.train.recipe(client.round).lr
        new = own - common + (start - fit.row)[: len(own)] / way
        if bool(torch.isfinite(new).all()):  # a broken reply is refused; the client must not keep it
            client.state["control"] = new
        reply = reply_of(client, fit, slot, size=len(self.train.training_part(client)))
        return replace(reply, stats={**reply.stats, "control": (new - own).numpy()})

    def expects(self, known: Known) -> dict[str, Stat]:
        return self.train.expects(known) | {"control": Stat(shape=(known.learned,), direction=True)}


@part("send", "with-control", needs=(ONE_MODEL, CONTROL), shows=SHOWS_CONTROLS)
class WithControl(ModelWith):
    """Everybody gets the model and the server's control variate."""

    key: ClassVar[Key[Tensor]] = CONTROL
    arg: ClassVar[str] = "control"


@part("after", "controls", needs=(CONTROLS,), gives=(CONTROL,), shows=SHOWS_CONTROLS)
def remember_control(now: Round) -> None:
    """Moves the server's control variate by what the clients' have moved: c <- c + sum of changes / N."""
    total = CONTROL.get(now.memory, torch.zeros(now.fleet.layout.trainable)).clone()
    for reply in now.replies:
        change = torch.as_tensor(reply.stats["control"])
        if change.shape == total.shape:
            total += change / len(now.fleet.members())
    CONTROL.keep(now.memory, total)


@method("scaffold", family="drift", paper="https://arxiv.org/abs/1910.06378")
def scaffold(train: Train, *, per_round: Count = 10, weighting: Weighting = "equal") -> Method:
    """FedAvg whose clients correct every step by how their gradients differ from everybody's.

    v <- v - lr (g - c_k + c), from v = w; c_k <- c_k - c + (w - v) / (K lr) after K steps; w <- mean of the v;
    c <- c + sum of the changes of c_k / N (Karimireddy et al., 2020, option II, server's rate 1). Clients send
    twice as much as in FedAvg.
    """
    return replace(
        random(train, per_round=per_round, weighting=weighting),
        name="scaffold",
        send=WithControl(),
        local=ControlledTrain(train=train),
        after=(remember_control,),
    )
