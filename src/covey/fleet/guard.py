"""What one client's update may be, compared with the others': so that no single client can end or steer a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.arrays import Array
from covey.core import Reply, Task
from covey.parts.mix.combine import Each, one_by_one
from covey.settings.ranges import Range
from covey.settings.signatures import validated_in
from covey.training.rows import Layout

# An update that changes a value by less than this (root mean square) is never too long: models that start at zero have
# no length of their own, and some clients train a hundred times longer than others.
SHORT = 0.1
# Statistics of BatchNorm follow the scale of a client's data, which differs far more than what is learned from them.
BUFFERS = 100.0
BUFFERS_OF = "update of buffers"
# An update that is shorter than this share of its model is never shortened: once most clients have learned all they
# can, what the others still learn is many times as long, and moves the model little.
SLIGHT = 0.05
SHORTEST = 1e-30  # an update that is shorter has no direction
REFUSED = 10.0  # times as long as the others': then it is refused
FEWEST_UPDATES = 3  # replies of a model from which on one can be compared with the others
# Clients that are asked in a round: among fewer, clients that merely differ are as far from the median as a liar.
# Not replies: a client that sends nothing, or nonsense, must not switch the bound off for an accomplice.
ENOUGH = 10


@dataclass(frozen=True, eq=False)
class Lengths:
    """How long each reply's update is and the row that it started from, [replies, parts].

    The parts: what is learned, buffers, and the directions that the method is told beside them.
    """

    own: Array
    start: Array
    parts: tuple[str, ...] = ("update", BUFFERS_OF)
    slots: tuple[int, ...] = ()  # the model that each reply started from; none: all from the same
    batches: tuple[int, ...] = ()  # that each was trained on; none: all on as many
    asked: int = 0  # clients, those included whose reply is missing or was refused
    units: Tensor = torch.zeros(0, 0)  # of each update over its length, the columns that are compared

    @cached_property
    def places(self) -> list[NDArray[np.intp]]:
        """The places of each model's replies, of the models with at least `FEWEST_UPDATES` of them."""
        slots = np.array(self.slots)
        order = np.argsort(slots, kind="stable")
        ends = np.flatnonzero(np.diff(slots[order], prepend=-1, append=-1))
        enough = np.diff(ends) >= FEWEST_UPDATES
        return [order[first:end] for first, end in zip(ends[:-1][enough], ends[1:][enough], strict=True)]

    @cached_property
    def by_model(self) -> list[tuple[NDArray[np.intp], Array]]:
        """The same places, and all inner products of their `units`."""
        found = []
        for here in self.places:
            units = (self.units if len(here) == len(self.slots) else self.units[here]).numpy()
            products = (units @ units.T).astype(np.float64)  # numpy works out one half, PyTorch both
            found.append((here, products))
        return found

    @property
    def others(self) -> Array:
        """The median length of the other updates, for each reply; there must be at least two."""
        return np.stack([medians_of_others(column) for column in self.own.T], axis=1)

    def of_same_model(self, values: Array) -> Array:
        """For each reply the median of the others of its model, or of the whole round where its model has too few."""
        found = medians_of_others(values)
        for here in self.places:
            if len(here) < len(values):
                found[here] = medians_of_others(values[here])
        return found

    def shares(self, factor: float) -> Array:
        """What is left of each update when it is shortened to `factor` times the others' length.

        A client that trains on more batches may go farther, as a random walk does: by the square root of their number.
        """
        whole = np.ones(len(self.own))
        if max(self.asked, len(self.own)) < ENOUGH or len(self.own) < FEWEST_UPDATES:
            return whole
        own = self.own[:, 0]
        steps = np.sqrt(np.maximum(1, self.batches)) if self.batches else whole
        usual = np.maximum(self.of_same_model(own), steps * self.of_same_model(own / steps))
        limits = np.maximum(factor * usual, SLIGHT * self.start[:, 0])
        return np.divide(limits, own, out=whole, where=own > limits)

    def limits(self, factor: float) -> Array:
        """How long each update may be before it is refused."""
        alone = len(self.own) < 2
        limits = factor * self.start if alone else np.maximum(factor * self.others, self.start)
        return np.asarray(limits * [BUFFERS if part == BUFFERS_OF else 1.0 for part in self.parts])

    def stands_out(self) -> tuple[int, float]:
        """The place of the reply that stands out most, and how many times as long as the others' its update is."""
        if len(self.own) < 2:
            return 0, 1.0
        learned = [place for place, part in enumerate(self.parts) if part != BUFFERS_OF]
        least = np.finfo(np.float32).tiny  # of a row's numbers
        times = (self.own / np.maximum(self.others, least))[:, learned].max(axis=1)
        return int(times.argmax()), float(times.max())


def lengths_of(
    replies: Sequence[Reply],
    tasks: Mapping[int, Task],
    layout: Layout,
    directions: Sequence[str] = (),
    columns: Tensor | None = None,
    each: Each = one_by_one,
) -> Lengths:
    """The lengths of the replies' updates, and of those statistics that move a model as an update does.

    Directions are compared on these columns of the updates, or on all of them. `each` calls a function for every reply.
    """
    cuts = slice(0, layout.trainable), slice(layout.trainable, layout.size)
    least = SHORT * np.sqrt([layout.trainable, layout.size - layout.trainable])
    own, start = (np.zeros((len(replies), 2 + len(directions))) for _ in range(2))
    units = torch.empty(len(replies), layout.trainable if columns is None else len(columns))
    rows = [tasks[reply.id].models[tasks[reply.id].slots.index(reply.slot)] for reply in replies]

    def measure(place: int) -> None:
        vector = replies[place].vector
        assert vector is not None
        update = vector - rows[place]
        learned, unit = update[cuts[0]], units[place]
        own[place, :2] = _length(learned), _length(update[cuts[1]])
        compared = learned if columns is None else torch.index_select(learned, 0, columns, out=unit)
        torch.mul(compared, 1 / max(own[place, 0], SHORTEST), out=unit)

    each(measure, range(len(replies)))
    distinct = {row.data_ptr(): row for row in rows}  # many clients start from the same row
    starts = {place: [_length(row[part]) for part in cuts] for place, row in distinct.items()}
    start[:, :2] = np.maximum([starts[row.data_ptr()] for row in rows], least)
    start[:, 2:] = start[:, :1]
    for part, name in enumerate(directions, 2):
        own[:, part] = [np.linalg.norm(np.asarray(reply.stats[name], np.float64)) for reply in replies]
    return Lengths(
        own,
        start,
        ("update", BUFFERS_OF, *directions),
        slots=tuple(reply.slot for reply in replies),
        batches=tuple(int(reply.stats.get("batches", 1)) for reply in replies),
        asked=len(tasks),
        units=units,
    )


def _length(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) if values.numel() else 0.0


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
    """What one client's answer may be, compared with the others'; 0 switches a rule off.

    norm: an update ||w_k - w|| is shortened to this many times the median length of the others' that train the same
    model (of all others of the round, where fewer than three train it), and to no less than a twentieth of the model w
    that it started from; with b times the batches of the others it may be sqrt(b) times as long. More than ten times
    the median of the round's others and longer than w, it is refused. Where fewer than ten clients are asked none is
    shortened, and alone in its round an update may be ten times as long as w. With it goes the check of directions: a
    client whose updates have pointed away from the others', beyond what different data do, is refused.
    samples: at real sites, a client may claim at most this many times as many samples as the median of the others.
    """

    norm: OffOrMore = 1.5
    samples: OffOrMore = 1000.0

    def too_long(self, lengths: Lengths) -> dict[int, str]:
        """Why each reply with too long an update cannot be used, by its place."""
        if not self.norm:
            return {}
        factor = max(self.norm, REFUSED)
        limits = lengths.limits(factor)
        over = ~(lengths.own <= limits)
        first = over.argmax(axis=1)
        return {
            place: f"its {lengths.parts[part]} is {lengths.own[place, part]:.3g} long, {factor:g} times the others' "
            f"is {limits[place, part]:.3g} (guard.norm)"
            for place, part in enumerate(first.tolist())
            if over[place].any()
        }

    def shortened(
        self, replies: Sequence[Reply], tasks: Mapping[int, Task], lengths: Lengths, layout: Layout
    ) -> dict[int, Reply]:
        """The replies with too long an update for an average, each with the share of it that may count, by client.

        What stays at a client is not averaged; buffers are no update.
        """
        found: dict[int, Reply] = {}
        shares = lengths.shares(self.norm) if self.norm else np.ones(len(replies))
        for place in np.flatnonzero(shares < 1).tolist():
            reply, task = replies[place], tasks[replies[place].id]
            if reply.vector is None or task.keep:
                continue
            row = reply.vector.clone()
            learned = slice(0, layout.trainable)
            start = task.models[task.slots.index(reply.slot)][learned]
            row[learned] = start + (row[learned] - start) * float(shares[place])
            found[reply.id] = replace(reply, vector=row)
        return found

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
