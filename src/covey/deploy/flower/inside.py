"""Flower's strategies inside covey's loop: the same clients, seeds, books and tables as every other method."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from torch import Tensor

from covey.core import Facts, Key, Method, Round, Shows
from covey.core.needs import ONE_MODEL
from covey.errors import RunError, UserError
from covey.parts.selection.plain import Uniform
from covey.parts.steps.train import Train

KEPT: Key[dict[str, Any]] = Key("what Flower's strategy remembers")

AT_CLIENTS = {  # what a strategy would have to do at clients, where covey's own training is
    flower.FedProx: "set prox of Train",
    flower.FedXgbBagging: "choose the method bagging",
    flower.FedXgbCyclic: "choose the method boosting",
    flower.DifferentialPrivacyClientSideFixedClipping: "use [private]",
    flower.DifferentialPrivacyClientSideAdaptiveClipping: "use [private]",
}


def as_method(strategy: flower.Strategy, train: Train, *, per_round: int = 10) -> Method:
    """A strategy of Flower as a method of covey: covey selects and trains, the strategy makes the next model.

    Its own sampling of nodes is not used, so that all methods of a comparison see the same clients.

    Args:
        strategy: such as `flwr.serverapp.strategy.FedAdam(eta=0.01)`; it stays as it is.
        train: the local training.

    Examples:
        >>> from flwr.serverapp.strategy import FedMedian
        >>> method = covey.flower.as_method(FedMedian(), covey.Train(lr=0.1))
    """
    if not isinstance(strategy, flower.Strategy):
        raise UserError(f"strategy is a {type(strategy).__name__}; allowed: one of flwr.serverapp.strategy")
    for kind, instead in AT_CLIENTS.items():
        if isinstance(strategy, kind):
            raise UserError(f"strategy is {kind.__name__}, which does its work at the clients; {instead}")
    return Method(
        name=f"flower-{type(strategy).__name__.lower()}",
        select=Uniform(per_round=per_round),
        local=train,
        combine=Aggregated(strategy=strategy),
    )


@dataclass(frozen=True, eq=False)
class Aggregated:
    """The common model as a strategy of Flower makes it; what the strategy remembers lies in the server's memory."""

    strategy: flower.Strategy

    needs: ClassVar[Facts] = (ONE_MODEL,)
    shows: ClassVar[Shows] = Shows(
        what="single updates", instead="choose fedavg, fedadam or another method of covey", in_updates=True
    )

    def __call__(self, now: Round) -> Tensor:
        from covey.deploy.flower_insides import identified  # of Flower's insides, this alone needs anything

        identified()
        strategy = copy.deepcopy(self.strategy)
        vars(strategy).update({name: revived(value) for name, value in KEPT.get(now.memory, {}).items()})
        layout = now.fleet.layout
        before = record_of(layout.tensors(now.models[0]))
        nodes = max(
            len(now.replies),
            *(getattr(strategy, name, 0) for name in ("min_available_nodes", "min_train_nodes")),
        )
        list(strategy.configure_train(now.number, before, ConfigRecord(), Nodes(range(1, nodes + 1))))
        made, _ = strategy.aggregate_train(
            now.number, [reply_of(now, place) for place in range(len(now.replies))]
        )
        if made is None:
            raise RunError(f"round {now.number}: {type(strategy).__name__} made no model of the replies")
        KEPT.keep(now.memory, changed(strategy, self.strategy))
        row = torch.cat([torch.from_numpy(np.array(made[name].numpy())).reshape(-1) for name in layout.names])
        return row.to(torch.float32)[None]


@dataclass(frozen=True)
class Nodes:
    """The part of a Grid that a strategy uses when it samples."""

    numbers: Sequence[int]

    def get_node_ids(self) -> Iterable[int]:
        return self.numbers


def record_of(tensors: dict[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(tensor.numpy()) for name, tensor in tensors.items()})


def reply_of(now: Round, place: int) -> Message:
    """A client's reply as Flower's own clients send it."""
    reply = now.replies[place]
    assert reply.vector is not None
    numbers = {name: float(value) for name, value in reply.stats.items() if np.ndim(value) == 0}
    metrics = MetricRecord({**numbers, "train_loss": numbers.get("loss", 0.0), "num-examples": reply.size})
    content = RecordDict({"arrays": record_of(now.fleet.layout.tensors(reply.vector)), "metrics": metrics})
    from covey.deploy.flower_insides import number_it

    asked = number_it(Message(RecordDict(), dst_node_id=place + 1, message_type="train"), f"{place}")
    return Message(content, reply_to=asked)


def changed(strategy: flower.Strategy, before: flower.Strategy) -> dict[str, Any]:
    """What the strategy keeps now and did not keep in the beginning, as plain values."""
    was = vars(before)
    return {
        name: plain(value, f"{type(strategy).__name__}.{name}")
        for name, value in vars(strategy).items()
        if not callable(value) and not isinstance(value, flower.Strategy) and not same(value, was.get(name))
    }


def same(one: Any, other: Any) -> bool:
    """Whether a plain setting did not change; of arrays nothing is compared."""
    return isinstance(one, bool | int | float | str | None) and one == other and type(one) is type(other)


def plain(value: Any, where: str) -> Any:
    if isinstance(value, ArrayRecord):
        return {"$arrays": {name: np.array(array.numpy()) for name, array in value.items()}}
    if isinstance(value, dict):
        return {str(name): plain(part, where) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, where) for part in value]
    if value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic):
        return value
    raise UserError(f"{where} is a {type(value).__name__}, which a run of covey cannot keep")


def revived(value: Any) -> Any:
    if isinstance(value, dict) and "$arrays" in value:
        return ArrayRecord({name: Array(np.asarray(part)) for name, part in value["$arrays"].items()})
    if isinstance(value, dict):
        return {name: revived(part) for name, part in value.items()}
    return [revived(part) for part in value] if isinstance(value, list) else value
