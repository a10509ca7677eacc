"""Training in which some tensors of the model stay with the client (FedPer, FedRep, FedBN)."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from covey.core import NOTHING, Client, Reply, Task, step
from covey.errors import UserError
from covey.parts.steps.stepwise import LocalBatches, check_plain, is_finite
from covey.parts.steps.train import AroundTraining, best_row, local_fit, reply_of
from covey.settings import Natural
from covey.training.frozen import SHOWN, named_by
from covey.training.rows import Layout


@step("home", shows=NOTHING)
class TrainWithHome(AroundTraining):
    """Training in which some tensors of the model stay at home.

    Which: the last `last`, those that `home` names, and with `norms` those of the norms. They take the place of
    those that are sent whenever the client trains or uses a model. What the server has of them never changes: it is
    what an unseen client starts from. They do not travel and are not charged. With `head_epochs` they are trained
    alone for that many epochs first, and then stay fixed while the rest is trained (FedRep).

    Args:
        last: how many tensors stay; a layer usually has two, weight and bias.
        norms: whether the weights, biases and statistics of norms stay.
        head_epochs: epochs of what stays before the rest is trained alone; 0: all is trained together.
        home: patterns of tensors that stay, such as ["*.B"] of adapters; the last ones then travel.
    """

    last: Natural = 2
    norms: bool = False
    head_epochs: Natural = 0
    home: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.head_epochs:
            check_plain(self.train, "training of one part after the other")

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        home = self.stays(client.bench.layout)
        reply = (
            self.in_turn(client, start, home, slot) if self.head_epochs else self.at_once(client, start, slot)
        )
        assert reply.vector is not None
        if is_finite(reply.vector):  # else it is refused, and the client must not keep it
            spans = self.places(client.bench.layout)
            client.state["home"] = {span.start: reply.vector[span].clone() for span in spans}
        return replace(reply, vector=reply.vector[~home])

    def at_once(self, client: Client, start: Tensor, slot: int) -> Reply:
        """Everything is trained together."""
        fit = local_fit(self.train, client, start)
        return reply_of(client, fit, slot, size=len(self.train.training_part(client)))

    def in_turn(self, client: Client, start: Tensor, home: Tensor, slot: int) -> Reply:
        """First what stays at home with the rest fixed, then the rest with what stays fixed."""
        row = start
        for free, train in (
            (home, replace(self.train, epochs=self.head_epochs, batches=None)),
            (~home, self.train),
        ):
            batches = LocalBatches.of(train, client)
            for batch in batches.order:
                row = torch.where(free, batches.step(row, batch), row)
        return batches.reply(client, row, slot)

    def unpacked(self, reply: Reply, task: Task, layout: Layout) -> Reply:
        """The row that was sent, with the client's part of it in its place."""
        home = self.stays(layout)
        if reply.vector is None or len(reply.vector) != int((~home).sum()) or reply.slot not in task.slots:
            return reply
        row = task.models[task.slots.index(reply.slot)].clone()
        row[~home] = reply.vector
        return replace(reply, vector=row)

    def stays(self, layout: Layout) -> Tensor:
        """True for every column of a row that stays with the client."""
        return columns_of(layout, self.places(layout))

    def places(self, layout: Layout) -> list[slice]:
        """From where to where in a row what stays lies."""
        if not self.home:
            return places_at_home(layout, self.last, self.norms)
        for pattern in self.home:
            if not any(named_by(pattern, name) for name in layout.names):
                raise UserError(
                    f"method.home has {pattern!r}, which is no tensor that trains; allowed: patterns of "
                    f"{', '.join(layout.names[:SHOWN])}"
                )
        named = [name for name in layout.names if any(named_by(pattern, name) for pattern in self.home)]
        return [layout.spans[name] for name in named]

    def spared(self, layout: Layout) -> int:
        return int(self.stays(layout).sum())

    def work(self, train: int, test: int) -> float:
        return self.train.work(train, test) + self.head_epochs * train


def at_home(layout: Layout, last: int, norms: bool) -> Tensor:
    """True for every column of a row that stays with the client."""
    return columns_of(layout, places_at_home(layout, last, norms))


def columns_of(layout: Layout, spans: Iterable[slice]) -> Tensor:
    """True for every column of a row that lies in one of the spans."""
    home = torch.zeros(layout.size, dtype=torch.bool)
    for span in spans:
        home[span] = True
    return home


def places_at_home(layout: Layout, last: int, norms: bool) -> list[slice]:
    """From where to where in a row the tensors lie that stay with the client.

    A norm is what has a running mean; its weight, bias and statistics stay. `last` counts trainable tensors.
    """
    with_mean = {name.rpartition(".")[0] for name in layout.names if name.endswith("running_mean")}
    trainable = [name for name, span in layout.spans.items() if span.stop <= layout.trainable]
    head = trainable[len(trainable) - last :] if last else []
    return [
        span
        for name, span in layout.spans.items()
        if name in head or (norms and name.rpartition(".")[0] in with_mean)
    ]
