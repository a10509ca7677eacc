"""Training in which something stays with the client: a model of its own (Ditto), or some tensors (FedPer, FedBN)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from covey.core import Client, Reply, Step, Task
from covey.metrics import Metric
from covey.model import Layout
from covey.needs import Fact, Facts
from covey.ranges import Natural, NotNegative
from covey.settings import validated
from covey.statistics import Known, Stat
from covey.steps.evaluate import Evaluate, outputs_of
from covey.steps.train import Train, best_row, local_fit, reply_of

OWN_MODEL = Fact("a model of its own at every client", 'set local = "ditto"')


@validated
@dataclass(frozen=True, kw_only=True)
class DittoTrain(Step):
    """Trains the common model w, and then the client's own v on F_k(v) + (pull / 2) ||v - w||^2 (Li et al., 2021).

    w is the model as it was received, v starts from it. v never leaves the client, and is what it uses.
    """

    train: Train
    pull: NotNegative = 0.1

    kind: ClassVar[str] = "train.ditto"
    gives: ClassVar[Facts] = (OWN_MODEL,)

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, common = best_row(client, task)
        fit = local_fit(self.train, client, common)
        own = client.state.get("own", common)
        # The step's pull is towards where it starts: what is missing to w is a constant part of the gradient.
        rest = self.pull * (own - common)[: client.bench.layout.trainable]
        personal = local_fit(replace(self.train, prox=self.pull), client, own, linear=rest)
        if bool(torch.isfinite(personal.row).all()):
            client.state["own"] = personal.row
        return reply_of(client, fit, slot, size=len(self.train.training_part(client)))

    def expects(self, known: Known) -> dict[str, Stat]:
        return self.train.expects(known)

    def work(self, train: int, test: int) -> float:
        return 2 * self.train.work(train, test)


@validated
@dataclass(frozen=True, kw_only=True)
class EvaluateOwn(Step):
    """Like `Evaluate` on test data, of the client's own model; who has none yet uses the one that was sent."""

    metrics: tuple[Metric, ...] = ()

    kind: ClassVar[str] = "evaluate.own"

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, row = best_row(client, task)
        outputs = outputs_of(client, client.state.get("own", row), *client.test.tensors())
        return Evaluate(metrics=self.metrics).reply(client, slot, *outputs)

    def expects(self, known: Known) -> dict[str, Stat]:
        return Evaluate(metrics=self.metrics).expects(known)

    def work(self, train: int, test: int) -> float:
        return Evaluate(metrics=self.metrics).work(train, test)


@validated
@dataclass(frozen=True, kw_only=True)
class TrainWithHome(Step):
    """Training in which some tensors of the model stay at home: the last `last`, and with `norms` those of the norms.

    They take the place of those that are sent whenever the client trains or uses a model. What the server has of them
    never changes: it is what a newcomer starts from.
    """

    train: Train
    last: Natural = 2
    norms: bool = False

    kind: ClassVar[str] = "train.home"

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        fit = local_fit(self.train, client, start)
        reply = reply_of(client, fit, slot, size=len(self.train.training_part(client)))
        if not bool(torch.isfinite(fit.row).all()):  # it is refused; the client must not keep it
            return reply
        row, received = fit.row.clone(), task.models[task.slots.index(slot)]
        spans = list(places_at_home(client.bench.layout, self.last, self.norms))
        client.state["home"] = {at: fit.row[at:end].clone() for at, end in spans}
        for at, end in spans:
            row[at:end] = received[at:end]
        return replace(reply, vector=row)

    def expects(self, known: Known) -> dict[str, Stat]:
        return self.train.expects(known)

    def work(self, train: int, test: int) -> float:
        return self.train.work(train, test)


def places_at_home(layout: Layout, last: int, norms: bool) -> Iterator[tuple[int, int]]:
    """From where to where in a row the tensors lie that stay with the client.

    A norm is what has a running mean; its weight, bias and statistics stay. `last` counts trainable tensors.
    """
    with_mean = {name.rpartition(".")[0] for name in layout.names if name.endswith("running_mean")}
    at, spans = 0, []
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        size = torch.Size(shape).numel()
        spans.append((name, at, at + size))
        at += size
    trainable = [span for span in spans if span[2] <= layout.trainable]
    head = {name for name, _, _ in trainable[len(trainable) - last :]} if last else set()
    for name, start, end in spans:
        if name in head or (norms and name.rpartition(".")[0] in with_mean):
            yield start, end
