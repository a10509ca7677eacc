"""SCAFFOLD: stochastic controlled averaging (Karimireddy et al., 2020), option II."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from covey.core import Client, Method, Reply, Round, Step, Task
from covey.core.needs import Key
from covey.core.reply_schema import Known, Stat
from covey.parts.mix.average import Average
from covey.parts.selection import Uniform
from covey.parts.steps import Train
from covey.parts.steps.train import best_row, local_fit, reply_of

CONTROL: Key[Tensor] = Key("scaffold.control")  # c, the mean of the clients' controls


@dataclass(frozen=True, kw_only=True)
class ScaffoldTrain(Step):
    """K local steps y <- y - lr (g(y) - c_i + c), then c_i <- c_i - c + (x - y) / (K lr); tells the change of c_i.

    c_i (start 0) is the client's own memory of where its data pull; c comes with the task.
    """

    train: Train

    kind: ClassVar[str] = "train.scaffold"

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        trainable = client.bench.layout.trainable
        own = client.state.get("control", torch.zeros(trainable))
        common = torch.as_tensor(task.args["control"])
        fit = local_fit(self.train, client, start, linear=common - own)
        steps, lr = len(fit.losses), self.train.recipe(client.round).lr
        new = own - common + (start - fit.row)[:trainable] / (steps * lr)
        client.state["control"] = new
        reply = reply_of(client, fit, slot, size=len(self.train.training_part(client)))
        return replace(reply, stats={**reply.stats, "control": (new - own).numpy()})

    def expects(self, known: Known) -> dict[str, Stat]:
        return {**self.train.expects(known), "control": Stat(shape=(None,))}

    def work(self, train: int, test: int) -> float:
        return self.train.work(train, test)


def with_control(now: Round, ids: Sequence[int]) -> dict[int, Task]:
    """Everybody gets the model and the common control."""
    control = CONTROL.get(now.memory, torch.zeros(now.fleet.layout.trainable))
    return dict.fromkeys(ids, Task(models=now.models[:1], slots=(0,), args={"control": control.numpy()}))


def remember_control(now: Round) -> None:
    """c <- c + (1/N) sum of the changes of c_i."""
    control = CONTROL.get(now.memory, torch.zeros(now.fleet.layout.trainable))
    changes = [torch.as_tensor(reply.stats["control"]) for reply in now.replies]
    CONTROL.keep(now.memory, control + torch.stack(changes).sum(0) / len(now.fleet.members()))


def scaffold(train: Train, *, per_round: int = 10) -> Method:
    """FedAvg whose clients correct their steps by how their data pull differently from everybody's.

    Args:
        per_round: how many clients work in a round.
    """
    return Method(
        name="scaffold",
        select=Uniform(per_round=per_round),
        send=with_control,
        local=ScaffoldTrain(train=replace(train, momentum=0.0)),
        mix=Average(weighting="equal"),
        after=(remember_control,),
    )
