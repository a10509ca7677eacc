"""Where inputs are cut into bins: agreed on once, from what all clients tell of theirs or from the scale alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.arrays import Array, Singles
from covey.core import Client, Facts, Key, Known, Reply, Round, Shows, Stat, Step, Task, step
from covey.core.needs import MODEL_PER_GROUP, ONE_MODEL
from covey.core.shows import NOTHING
from covey.errors import SilentRoundError
from covey.training.trees.forest import Grove

Cuts = Literal["quantiles", "grid"]
POINTS = 256  # values that a client tells of each input
WIDEST = 3.0  # standard deviations that a grid reaches from the mean
FIRST: Key[Tensor] = Key("boosting.first")  # the row that every forest starts from
QUANTILES = Shows(what="quantiles of every client's inputs", instead='set method.cuts = "grid"')


@step(kind="query.quantiles", passes=0.01)
class TellQuantiles(Step):
    """Of each input at most 256 values, each with how many samples it stands for: all values, or evenly spaced ones."""

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        x = client.train.tensors()[0].flatten(1).numpy()
        values, counts = (np.zeros((x.shape[1], POINTS), np.float32) for _ in range(2))
        for feature in range(x.shape[1]):
            own, often = thinned(*np.unique(x[:, feature], return_counts=True))
            values[feature, : len(own)], counts[feature, : len(own)] = own, often
        return Reply(id=client.id, size=len(x), stats={"values": values, "counts": counts})

    def expects(self, known: Known) -> dict[str, Stat]:
        shape = (int(np.prod(known.shape)) if known.shape else None, POINTS)
        # a client that claims more samples than it has would place all cuts
        return {
            "values": Stat(shape=shape),
            "counts": Stat(shape=shape, low=0.0, total=(0.0, float(known.train))),
        }


def thinned(values: Singles, counts: NDArray[np.int64]) -> tuple[Singles, NDArray[np.int64]]:
    """At most `POINTS` of the values, each with the counts of all that lie between it and the next one."""
    if len(values) <= POINTS:
        return values, counts
    before = np.cumsum(counts) - counts
    places = np.unique(np.searchsorted(before, np.arange(POINTS) * counts.sum() / POINTS))
    places = places[places < len(values)]
    places[0] = 0
    return values[places], np.add.reduceat(counts, places)


def cuts_of(points: Sequence[NDArray[np.generic]], bins: int) -> Singles:
    """The cuts of every input by what clients told of it, [inputs, bins - 1]; the last one stands in for absent ones.

    With at most `bins` different values each is a bin. Else cut i is the first value that i / bins of all samples lie
    below.
    """
    together = np.concatenate([np.asarray(one, np.float64) for one in points], axis=1)
    found = np.zeros((len(together), bins - 1), np.float32)
    for feature, told in enumerate(together):
        told = told[told[:, 1] > 0]
        values, place = np.unique(told[:, 0].astype(np.float32), return_inverse=True)
        found[feature] = cuts_between(values, np.bincount(place.ravel(), told[:, 1]).astype(np.float64), bins)
    return found


def cuts_between(values: Singles, weights: Array, bins: int) -> Singles:
    """The cuts of one input with these values."""
    if len(values) == 0:
        return np.zeros(bins - 1, np.float32)
    if len(values) > bins:
        below = np.cumsum(weights) - weights
        wanted = np.arange(1, bins) * weights.sum() / bins
        values = values[np.unique(np.minimum(np.searchsorted(below, wanted), len(values) - 1))]
    else:
        values = values[1:] if len(values) > 1 else values
    return np.concatenate([values, np.full(bins - 1 - len(values), values[-1], np.float32)])


@dataclass(frozen=True, kw_only=True)
class Forests:
    """One forest, or one per group, each without any tree at first and all with the same cuts.

    With `base` every margin starts there; without, the first round finds out where.
    """

    cuts: Cuts = "quantiles"
    base: float | None = None
    per_group: bool = False

    @property
    def shows(self) -> Shows:
        return QUANTILES if self.cuts == "quantiles" else NOTHING

    @property
    def gives(self) -> Facts:
        return (MODEL_PER_GROUP,) if self.per_group else (ONE_MODEL,)

    def __call__(self, now: Round) -> Tensor:
        wanted = 1 + (max(now.groups.values(), default=0) if self.per_group else 0)
        if len(now.models) >= wanted:
            return now.models
        if FIRST.name not in now.memory:
            FIRST.keep(now.memory, self.first(now))
        first = FIRST.of(now.memory)[None]
        return torch.cat([now.models, first.expand(wanted - len(now.models), -1)])

    def first(self, now: Round) -> Tensor:
        """The row before the first sum."""
        row = now.fleet.start().clone()
        grove = Grove(now.fleet.layout, row)
        if self.cuts == "grid":
            grove.cuts[:] = np.linspace(-WIDEST, WIDEST, grove.bins - 1, dtype=np.float32)
        else:
            told = now.ask(TellQuantiles(), now.here)
            if not told:
                raise SilentRoundError(f"round {now.number}: nobody told the quantiles of its inputs")
            points = [np.stack([reply.stats["values"], reply.stats["counts"]], axis=2) for reply in told]
            grove.cuts[:] = cuts_of(points, grove.bins)
        grove.grown = -1 if self.base is None else 0
        grove.base[:] = self.base or 0.0
        return row
