"""Prototypes: what the samples of each class look like on average before the last layer, and training towards them."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from covey.arrays import Array
from covey.core import Key, Known, Reply, Round, Shows, Stat
from covey.data.types import Dataset
from covey.parts.steps.latents import representations, watched
from covey.training.bench import LossFunction
from covey.training.bench.torch_bench import TorchBench

# [classes, 1 + d]: samples behind a prototype, and the prototype
PROTOTYPES: Key[Tensor] = Key("prototypes")
SHOWS_MEANS = Shows(
    what="exact means of every client's samples by class",
    instead="use fedavg, or ditto for models of one's own",
)


def prototypes(bench: TorchBench, row: Tensor, x: Tensor, y: Tensor, classes: int) -> Tensor:
    """Of every class the number of samples and the mean of their representations, [classes, 1 + d]."""
    z = representations(bench, row, x).double()
    kinds = F.one_hot(y.long(), classes).double()
    counts = kinds.sum(0)
    means = kinds.T @ z / counts.clamp(min=1)[:, None]
    return torch.cat([counts[:, None], means], 1).float()


def towards(bench: TorchBench, common: Tensor | None, pull: float) -> Callable[[Tensor], LossFunction] | None:
    """The objective's loss + pull times the mean squared distance of representations to their class's prototype.

    A class that no client has told of yet has no prototype, and its samples no such term.
    """
    if common is None or not pull:
        return None
    known, means = common[:, 0] > 0, common[:, 1:]

    def loss(x: Tensor) -> LossFunction:  # noqa: ARG001
        seen: dict[str, Tensor] = {}

        def of(model: nn.Module, inputs: Tensor, target: Tensor, index: Tensor) -> Tensor:  # noqa: ARG001
            with watched(model, seen):
                outputs = model(inputs)
            there = known.to(target.device)[target]
            apart = (seen["z"] - means.to(inputs.device)[target]).square().mean(1)
            return bench.objective.loss(outputs, target) + pull * (apart * there).sum() / len(target)

        return of

    return loss


def keep_prototypes(now: Round) -> None:
    """The mean of the clients' prototypes, by samples; a class that nobody in this round has keeps its last one."""
    told_by = [(reply.stats["counts"], reply.stats["prototypes"]) for reply in now.replies]
    tables = [np.column_stack(pair).astype(np.float64) for pair in told_by]
    if not tables:
        return
    common = torch.from_numpy(averaged(tables)).float()
    if PROTOTYPES.name in now.memory:
        common = torch.where(common[:, :1] > 0, common, PROTOTYPES.of(now.memory))
    PROTOTYPES.keep(now.memory, common)


def common_prototypes(now: Round) -> dict[str, Tensor]:
    """The prototypes in a task, once there are any."""
    return {"prototypes": PROTOTYPES.of(now.memory)} if PROTOTYPES.name in now.memory else {}


def averaged(tables: Sequence[Array]) -> Array:
    """Samples added up, prototypes averaged by samples."""
    counts = np.stack([table[:, 0] for table in tables])
    total = counts.sum(0)
    sums = sum(table[:, :1] * table[:, 1:] for table in tables)
    return np.column_stack([total, sums / np.maximum(total, 1)[:, None]])


def told(table: Tensor, reply: Reply) -> dict[str, object]:
    """The reply's statistics, with the client's prototypes and how many samples are behind each."""
    return {**reply.stats, "counts": table[:, 0].numpy(), "prototypes": table[:, 1:].numpy()}


def expected(known: Known) -> dict[str, Stat]:
    """A count and a prototype for each class; prototypes draw everybody's models to them, as an update would."""
    counts = Stat(shape=(known.classes,), low=0.0, total=(0.0, float(known.most)))
    return {"counts": counts, "prototypes": Stat(shape=(known.classes, None), direction=True)}


def no_classes(dataset: Dataset) -> str:
    """Why there are no prototypes of such data, or an empty text."""
    return "" if dataset.classes and dataset.y.dim() == 1 else "prototypes are of classes, and it has none"
