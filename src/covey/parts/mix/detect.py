"""Detectors of poisoned updates: whoever stands out is left out, and the rest is averaged as the method says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.arrays import Array
from covey.parts.mix.gram import products
from covey.parts.mix.robust import weighted_mean
from covey.settings import Natural, register, validated


def kept_mean(rows: Sequence[Tensor], weights: Array, kept: NDArray[np.intp]) -> Tensor:
    """The weighted mean of those that are left."""
    left = weights[kept] if weights[kept].sum() > 0 else np.ones(len(kept))
    return weighted_mean([rows[place] for place in kept], left / left.sum())


@register("robust combine", "spectral")
@validated
@dataclass(frozen=True, kw_only=True)
class Spectral:
    """Leaves out the updates that lie farthest along the direction in which all differ most (as in DnC, 2021).

    With u_k the updates scaled to the median length, c their mean and v the first right singular vector of u - c, the
    score is <u_k - c, v>^2. It withstands `hostile` of n >= 2 hostile + 1 replies.

    Args:
        hostile: how many updates are left out.
    """

    hostile: Natural = 1

    around_start: ClassVar[bool] = True

    def combine(self, rows: Sequence[Tensor], weights: Array, start: Tensor) -> Tensor:
        scores = spectral_scores([row - start for row in rows])
        return kept_mean(rows, weights, least(scores, fewer(self.hostile, len(rows))))

    def fewest(self) -> int:
        return 2 * self.hostile + 1


@register("robust combine", "cosine")
@validated
@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Leaves out the updates that point away from the others: those with the lowest median cosine to them.

    Args:
        hostile: how many updates are left out.
    """

    hostile: Natural = 1

    around_start: ClassVar[bool] = True

    def combine(self, rows: Sequence[Tensor], weights: Array, start: Tensor) -> Tensor:
        scores = -median_cosines([row - start for row in rows])
        return kept_mean(rows, weights, least(scores, fewer(self.hostile, len(rows))))

    def fewest(self) -> int:
        return 2 * self.hostile + 1


def fewer(hostile: int, replies: int) -> int:
    """How many can be left out: never half of them."""
    return min(hostile, (replies - 1) // 2)


def least(scores: Array, without: int) -> NDArray[np.intp]:
    """The places of all but the highest scores, in their order."""
    return np.sort(np.argsort(scores, kind="stable")[: len(scores) - without])


def spectral_scores(updates: Sequence[Tensor]) -> Array:
    """The squared share of each update in the first direction; by the Gram matrix, so that no large matrix is made."""
    lengths = np.array([float(torch.linalg.vector_norm(u, dtype=torch.float64)) for u in updates])
    usual = float(np.median(lengths))
    scale = np.divide(usual, lengths, out=np.ones_like(lengths), where=lengths > usual)
    gram = products(updates) * np.outer(scale, scale)
    centred = gram - gram.mean(0) - gram.mean(1)[:, None] + gram.mean()
    values, vectors = np.linalg.eigh(centred)
    return np.asarray(values[-1] * vectors[:, -1] ** 2)


def median_cosines(updates: Sequence[Tensor]) -> Array:
    """For each update the median of its cosines to the others."""
    gram = products(updates)
    lengths = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    cosines = gram / np.outer(lengths, lengths)
    np.fill_diagonal(cosines, np.nan)
    return np.asarray(np.nanmedian(cosines, axis=1)) if len(updates) > 1 else np.ones(1)
