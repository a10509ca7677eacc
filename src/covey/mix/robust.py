"""Combines that a few broken or hostile clients cannot steer: Krum, trimmed mean, median."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core import Mixing, Reply, Round
from covey.errors import UserError
from covey.mix.average import weighted_rows
from covey.mix.gram import products

Array = NDArray[np.float64]

COLUMNS = 1 << 16  # sorted at a time


def krum_scores(vectors: list[Tensor], hostile: int) -> Array:
    """For each vector the sum of squared distances to its n - f - 2 nearest others (at least one)."""
    gram = products(vectors)
    lengths = np.diag(gram)
    distance = np.maximum(lengths[:, None] + lengths[None] - 2 * gram, 0)
    np.fill_diagonal(distance, np.inf)
    near = max(1, len(vectors) - hostile - 2)
    return np.asarray(np.sort(distance, axis=1)[:, :near].sum(axis=1))


@dataclass(frozen=True, kw_only=True)
class Krum:
    """All weight on the `keep` replies that lie closest to their neighbours, equally (Blanchard et al., 2017).

    `hostile` is the number f of bad replies to withstand; with n replies it needs n >= 2 f + 3.
    """

    hostile: int = 1
    keep: int = 1

    def __post_init__(self) -> None:
        if self.hostile < 0:
            raise UserError(f"hostile is {self.hostile}; it must be at least 0")
        if self.keep < 1:
            raise UserError(f"keep is {self.keep}; it must be at least 1")

    def __call__(self, now: Round) -> Mixing:
        slots = [reply.slot for reply in now.replies]
        values = np.zeros(len(slots))
        for slot in set(slots):
            here = [place for place, other in enumerate(slots) if other == slot]
            if len(here) == 1:
                values[here] = 1.0
                continue
            scores = krum_scores([_row(now.replies[place]) for place in here], self.hostile)
            values[np.array(here)[np.argsort(scores, kind="stable")[: self.keep]]] = 1.0
        return Mixing(factors=[weighted_rows(now, slots, values)])


def trimmed_mean(rows: Tensor, cut: int) -> Tensor:
    """The mean of each column without its `cut` largest and `cut` smallest values."""
    kept = rows.sort(dim=0).values[cut : len(rows) - cut]
    return kept.double().mean(0).float()


def median(rows: Tensor) -> Tensor:
    """The median of each column; of an even number, the mean of the two in the middle."""
    return trimmed_mean(rows, (len(rows) - 1) // 2)


@dataclass(frozen=True, kw_only=True)
class TrimmedMean:
    """Column by column, the mean without the share `trim` of the replies at either end (Yin et al., 2018)."""

    trim: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.trim < 0.5:
            raise UserError(f"trim is {self.trim!r}; allowed: from 0 to below 0.5")

    def __call__(self, now: Round) -> Tensor:
        return column_by_column(now, lambda rows: trimmed_mean(rows, int(self.trim * len(rows))))


@dataclass(frozen=True)
class Median:
    """Column by column, the median of the replies (Yin et al., 2018)."""

    def __call__(self, now: Round) -> Tensor:
        return column_by_column(now, median)


def column_by_column(now: Round, rule: Callable[[Tensor], Tensor]) -> Tensor:
    """The bank with each row replaced by the rule over the replies that started from it; others stay."""
    new = now.models.clone()
    for slot in sorted({reply.slot for reply in now.replies}):
        vectors = [_row(reply) for reply in now.replies if reply.slot == slot]
        for start in range(0, new.shape[1], COLUMNS):
            part = torch.stack([vector[start : start + COLUMNS] for vector in vectors])
            new[slot, start : start + COLUMNS] = rule(part)
    return new


def _row(reply: Reply) -> Tensor:
    assert reply.vector is not None
    return reply.vector
