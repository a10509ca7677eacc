"""FedProto: federated prototype learning across heterogeneous clients (Tan et al., 2022)."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from covey.core import (
    MODEL_PER_CLIENT,
    Client,
    Known,
    Method,
    Reply,
    Round,
    Stat,
    Task,
    method,
    part,
    step,
)
from covey.data.types import Dataset
from covey.parts.banks import one_per_client, to_owner
from covey.parts.mix.average import keep_own
from covey.parts.selection.plain import Uniform
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.prototypes import (
    SHOWS_MEANS,
    common_prototypes,
    expected,
    keep_prototypes,
    no_classes,
    prototypes,
    told,
    towards,
)
from covey.parts.steps.train import AroundTraining, Train, local_fit, reply_of, with_own_buffers
from covey.parts.widths import WidthShare
from covey.settings import Count, NotNegative
from covey.training.bench.torch_bench import TorchBench
from covey.training.narrow import Narrow

EMBEDDED = 2  # layers that all widths have whole: what gives the representation, and what gives the outputs


@part("send", "own-and-prototypes", shows=SHOWS_MEANS, needs=(MODEL_PER_CLIENT,))
def own_and_prototypes(now: Round, ids: Sequence[int]) -> dict[int, Task]:
    """Everybody works on the model that it holds; what travels is the common prototypes, once there are any."""
    args = common_prototypes(now)
    return {i: replace(task, args=args) for i, task in to_owner(now, ids).items()}


@step("prototypes", shows=SHOWS_MEANS, passes=FORWARD_SHARE)
class TrainToPrototypes(AroundTraining):
    """Trains the client's own network, whose representations are drawn to the common prototypes, and tells its own.

    Args:
        pull: weight of the distance to the prototypes (the paper's lambda).
        widths: of the device classes; client i is of class i modulo their number, and its network is so wide.
    """

    pull: NotNegative = 1.0
    widths: tuple[WidthShare, ...] = (1.0,)

    def __call__(self, client: Client, task: Task) -> Reply:
        layout, bench, row = (
            client.bench.layout,
            client.bench.on_torch(),
            with_own_buffers(client, task.models[0]),
        )
        width, columns = self.widths[client.id % len(self.widths)], torch.arange(layout.size)
        if width < 1:
            narrow = Narrow.of(bench.model, width, whole=EMBEDDED, scaled=False)
            columns = narrow.columns(layout)
            bench = TorchBench(narrow.network(), bench.objective, device=str(bench.device))
        own = replace(client, bench=bench)
        common = task.args.get("prototypes")
        loss = towards(bench, None if common is None else torch.as_tensor(common), self.pull)
        fit = local_fit(self.train, own, row[columns], loss=loss)
        samples = self.train.training_part(client)
        table = prototypes(bench, fit.row, *samples.tensors(), len(samples.dataset.classes))
        reply = reply_of(client, fit, task.slots[0], size=len(samples))
        whole = torch.zeros(layout.size).index_copy(0, columns, fit.row)
        return replace(reply, vector=whole, stats=told(table, reply))

    def expects(self, known: Known) -> dict[str, Stat]:
        return {**super().expects(known), **expected(known)}

    def unfit(self, dataset: Dataset) -> str:
        return no_classes(dataset)


@part("after", "prototypes", needs=(), shows=SHOWS_MEANS)
class KeepPrototypes:
    """Averages the clients' prototypes by samples."""

    def __call__(self, now: Round) -> None:
        keep_prototypes(now)


@method("fedproto", family="devices", paper="https://arxiv.org/abs/2105.00243")
def fedproto(
    train: Train,
    *,
    per_round: Count = 10,
    pull: NotNegative = 1.0,
    widths: tuple[WidthShare, ...] = (1.0, 0.5, 0.25),
) -> Method:
    """Everybody has a network of its own, of any width; what travels is prototypes, the mean representation per class.

    A client minimises F_k(w_k) + pull (mean squared distance of its samples' representations to the common prototypes
    of their classes); the server averages the clients' prototypes by samples (Tan et al., 2022). A client answers with
    its own network.

    Args:
        pull: weight of the distance to the prototypes.
    """
    return Method(
        name="fedproto",
        select=Uniform(per_round=per_round),
        bank=one_per_client,
        send=own_and_prototypes,
        serve=to_owner,
        local=TrainToPrototypes(train=train, pull=pull, widths=widths),
        mix=keep_own,
        after=(KeepPrototypes(),),
    )
