"""What one client's update may be beside the others': so that a stranger can neither end nor bend a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core import Reply, Task
from covey.model import Layout
from covey.ranges import Range
from covey.settings import validated_in

Array = NDArray[np.float64]

# An update that changes a value by less than this (root mean square) is never too long: models that start at zero have
# no length of their own, and some clients train a hundred times longer than others.
SHORT = 0.1
# Statistics of BatchNorm follow the scale of a client's data, which differs far more than what is learned from them.
BUFFERS = 100.0
BUFFERS_OF = "update of buffers"


@dataclass(frozen=True, eq=False)
class Lengths:
    """How long each reply's update is and the row that it started from, [replies, parts].

    The parts: what is learned, buffers, and the directions that the method is told beside them.
    """

    own: Array
    start: Array
    parts: tuple[str, ...] = ("update", BUFFERS_OF)

    @property
    def others(self) -> Array:
        """The median length of the other updates, for each reply; there must be at least two."""
        return np.stack([medians_of_others(column) for column in self.own.T], axis=1)

    def limits(self, factor: float) -> Array:
        """How long each update may be."""
        alone = len(self.own) < 2
        limits = factor * self.start if alone else np.maximum(factor * self.others, self.start)
        return np.asarray(limits * [BUFFERS if part == BUFFERS_OF else 1.0 for part in self.parts])

    def stands_out(self) -> tuple[int, float]:
        """The place of the reply that stands out most, and how many times as long as the others' its update is."""
        if len(self.own) < 2:
            return 0, 1.0
        learned = [place for place, part in enumerate(self.parts) if part != BUFFERS_OF]
        times = (self.own / np.maximum(self.others, np.finfo(np.float64).tiny))[:, learned].max(axis=1)
        return int(times.argmax()), float(times.max())


def lengths_of(
    replies: Sequence[Reply], tasks: Mapping[int, Task], layout: Layout, directions: Sequence[str] = ()
) -> Lengths:
    """The lengths of the replies' updates, and of those statistics that move a model as an update does."""
    cuts = slice(0, layout.trainable), slice(layout.trainable, layout.size)
    least = SHORT * np.sqrt([layout.trainable, layout.size - layout.trainable])
    own, start = (np.zeros((len(replies), 2 + len(directions))) for _ in range(2))
    for place, reply in enumerate(replies):
        assert reply.vector is not None
        task = tasks[reply.id]
        row = task.models[task.slots.index(reply.slot)]
        for part, columns in enumerate(cuts):
            own[place, part] = _length(reply.vector[columns] - row[columns])
            start[place, part] = max(_length(row[columns]), least[part])
        own[place, 2:] = [np.linalg.norm(np.asarray(reply.stats[name], np.float64)) for name in directions]
        start[place, 2:] = start[place, 0]
    return Lengths(own, start, ("update", BUFFERS_OF, *directions))


def _length(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) if len(values) else 0.0


def medians_of_others(values: Array) -> Array:
    """For each of at least two values the median of the others."""
    order = np.argsort(values, kind="stable")
    ranked, rank = values[order], np.argsort(order, kind="stable")
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2  # places among the others
    return np.asarray((ranked[low + (rank <= low)] + ranked[high + (rank <= high)]) / 2)


OffOrMore = Literal[0] | Annotated[float, Range(1)]


@validated_in("guard")
@dataclass(frozen=True, kw_only=True)
class Guard:
    """When an answer is refused for what it is beside the others'; 0 switches a rule off.

    norm: an update ||w_k - w|| may be so many times as long as the median of the others' of the round, and is never too
    long while it is shorter than the model w it started from; alone in its round, so many times as long as that model.
    samples: at real sites, a client may say that it has so many times as many samples as the median of the others.
    """

    norm: OffOrMore = 10.0
    samples: OffOrMore = 1000.0

    def too_long(self, lengths: Lengths) -> dict[int, str]:
        """Why each reply with too long an update cannot be used, by its place."""
        if not self.norm:
            return {}
        limits = lengths.limits(self.norm)
        over = ~(lengths.own <= limits)
        first = over.argmax(axis=1)
        return {
            place: f"its {lengths.parts[part]} is {lengths.own[place, part]:.3g} long, {self.norm:g} times the others' "
            f"is {limits[place, part]:.3g} (guard.norm)"
            for place, part in enumerate(first.tolist())
            if over[place].any()
        }

    def too_many(self, sizes: Sequence[int]) -> dict[int, str]:
        """Why each client with that many samples cannot be believed, by its place."""
        if not self.samples or len(sizes) < 2:
            return {}
        others = medians_of_others(np.asarray(sizes, dtype=np.float64))
        return {
            place: f"it says it has {size} samples, more than {self.samples:g} times the others' (guard.samples)"
            for place, (size, other) in enumerate(zip(sizes, others, strict=True))
            if size > self.samples * max(other, 1.0)
        }
