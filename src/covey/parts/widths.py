"""Devices with networks of different widths: who is sent which part of the common model, and how parts are averaged."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch

from covey.core import ONE_MODEL, Fact, Mixing, Round, Shows, Task, part
from covey.parts.mix.average import Weighting, weighted_rows, weights
from covey.settings import Range
from covey.training.narrow import Narrow

WIDTHS = Fact("the width of every client's network", 'set send = "widths"')
WidthShare = Annotated[float, Range(above=0, most=1)]
# an average of a part shows the few who have it: no sum over the whole round covers it
SHOWS_PARTS = Shows(what="which clients have which part of the model", instead="use fedavg or fedavgm")


@part("send", "widths", needs=(ONE_MODEL,), gives=(WIDTHS,), shows=SHOWS_PARTS)
class ToWidths:
    """Client i gets the part of the common model that its device can hold: ceil(width n) of n units of a hidden layer.

    Args:
        rolling: whether the units begin one further in every round (FedRolex), or are always the first (HeteroFL).
    """

    widths: tuple[WidthShare, ...] = (1.0, 0.5, 0.25)
    rolling: bool = False

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        layout, row = now.fleet.layout, now.models[0]
        first = now.number - 1 if self.rolling else 0
        tasks = {}
        for width in dict.fromkeys(self.widths):
            args = {"width": width, "first": first}
            columns = Narrow.of(now.fleet.model, width, first=first).columns(layout)
            held = torch.zeros_like(row).index_copy(0, columns, row[columns])
            tasks[width] = (
                Task(models=now.models[:1], slots=(0,), args=args)
                if len(columns) == layout.size
                else Task(models=held[None], slots=(0,), args=args, columns=columns)
            )
        return {i: tasks[self.widths[i % len(self.widths)]] for i in ids}


@part("send", "usable-widths", needs=(ONE_MODEL,), shows=SHOWS_PARTS)
class ServeWidths:
    """Client i uses the part that it would be sent next, as the whole network has it: zero elsewhere."""

    widths: tuple[WidthShare, ...] = (1.0, 0.5, 0.25)
    rolling: bool = False

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        layout, first = now.fleet.layout, now.number if self.rolling else 0
        tasks = {}
        for width in dict.fromkeys(self.widths):
            narrow = Narrow.of(now.fleet.model, width, first=first)
            row = now.models[0] if width >= 1 else narrow.scale(now.models[0], layout)
            tasks[width] = Task(models=row[None], slots=(0,))
        return {i: tasks[self.widths[i % len(self.widths)]] for i in ids}


@part("mix", "covered", needs=(ONE_MODEL,), shows=SHOWS_PARTS)
class AverageCovered:
    """Every number is averaged over those clients whose networks have it; one that none has stays as it is.

    w[j] <- sum of n_k w_k[j] / sum of n_k over the clients k of the round whose part holds number j.
    """

    weighting: Weighting = "samples"

    def __call__(self, now: Round) -> list[Mixing]:
        values = weights(now.replies, self.weighting)
        held = [now.tasks[reply.id].columns for reply in now.replies]
        everything = torch.arange(now.models.shape[1])
        bits = {name: 1 << bit for bit, name in enumerate(dict.fromkeys(map(id, held)))}
        # a number per column that says which of the parts hold it
        code = np.zeros(now.models.shape[1], np.int64)
        for columns in {id(columns): columns for columns in held}.values():
            code[(everything if columns is None else columns).numpy()] |= bits[id(columns)]
        mixings = []
        for among in np.unique(code).tolist():
            said = [bool(among & bits[id(columns)]) for columns in held]
            factor = weighted_rows(now, values * np.array(said))
            mixings.append(Mixing(factors=[factor], columns=everything[torch.from_numpy(code == among)]))
        return mixings
