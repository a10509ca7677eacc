"""Detectors of poisoned updates: those that stand out are left out, and the rest are averaged as the method says."""

from collections.abc import Sequence
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


@validated
class LeavesOut:
    """Leaves out the updates with the highest scores, never half of them, and averages the rest.

    Args:
        hostile: how many updates are left out.
    """

    hostile: Natural = 1

    around_start: ClassVar[bool] = True

    def scores(self, updates: Sequence[Tensor]) -> Array:
        """Of each update, how far it stands out."""
        raise NotImplementedError

    def combine(self, rows: Sequence[Tensor], weights: Array, start: Tensor) -> Tensor:
        scores = self.scores([row - start for row in rows])
        return kept_mean(rows, weights, least(scores, min(self.hostile, (len(rows) - 1) // 2)))

    def fewest(self) -> int:
        return 2 * self.hostile + 1


@register("robust combine", "spectral")
@validated
class Spectral(LeavesOut):
    """Leaves out the updates that lie farthest along the direction in which all differ most (as in DnC, 2021).

    With u_k the updates scaled to the median length, c their mean and v the first right singular vector of u - c, the
    score is <u_k - c, v>^2. It withstands `hostile` of n >= 2 hostile + 1 replies.
    """

    def scores(self, updates: Sequence[Tensor]) -> Array:
        return spectral_scores(updates)


@register("robust combine", "cosine")
@validated
class Cosine(LeavesOut):
    """Leaves out the updates that point away from the others: those with the lowest median cosine to them."""

    def scores(self, updates: Sequence[Tensor]) -> Array:
        return -median_cosines(updates)


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
