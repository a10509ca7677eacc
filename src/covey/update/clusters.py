"""CFIC's intra-cluster correction: momentum along the clusters' unit directions (eq. 3-5)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from covey.core import Reply, Round
from covey.errors import UserError

RATE = 0.1  # how fast the adaptive variant changes beta: at most by 10 % a round
STANDSTILL = 1e-12  # a cluster that moved less than this points nowhere

CorrectionScale = Literal["relative", "absolute"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Directions:
    """Where the clusters pull: u = sum of (n_i / n) d_i, with d_i the unit vector from the old model to cluster i's."""

    mean: Tensor  # u, float64
    shares: tuple[float, ...]  # n_i / n of the clusters present; they add up to 1

    @property
    def length(self) -> float:
        """||u||: 1 when all clusters pull the same way, near 0 when they cancel."""
        return float(self.mean.norm())

    @property
    def agreement(self) -> float:
        """Weighted mean cosine between two different clusters' directions: 1 all alike, 0 orthogonal, below 0 at odds.

        ||u||^2 = sum s_i^2 + sum over i != j of s_i s_j cos_ij.
        """
        alone = sum(share * share for share in self.shares)
        return (self.length**2 - alone) / (1 - alone) if alone < 1 else 1.0


def cluster_directions(old: Tensor, replies: Sequence[Reply], groups: Mapping[int, int]) -> Directions:
    """The clusters' models are averages of their members' replies, weighted by samples (eq. 3).

    `old` holds the trainable part of the old model; n_i counts the samples of the members that replied. A client of
    unknown group is a cluster of its own; a cluster that stood still has no direction, but keeps its share.
    """
    clusters: dict[int | tuple[str, int], list[Reply]] = {}
    for reply in replies:
        clusters.setdefault(groups.get(reply.id, ("alone", reply.id)), []).append(reply)
    sizes = [sum(reply.size for reply in members) for members in clusters.values()]
    total = sum(sizes)
    start = old.double()
    mean = torch.zeros_like(start)
    for members, size in zip(clusters.values(), sizes, strict=True):
        move = -start
        for reply in members:
            assert reply.vector is not None
            move.add_(reply.vector[: len(start)], alpha=reply.size / size)
        length = float(move.norm())
        if length > STANDSTILL:
            mean.add_(move, alpha=size / total / length)
    return Directions(mean=mean, shares=tuple(size / total for size in sizes))


@dataclass(frozen=True, kw_only=True)
class ClusterCorrection:
    """h <- alpha h - beta u; w <- average - h (eq. 4, 5), on the trainable part of the one global model.

    `absolute`: u is taken as it is and beta is a length in parameter space, as printed. `relative`: u is stretched to
    the length of the round's average update, so that beta fits any model and the correction fades as the model settles;
    kept up, it adds beta / (1 - alpha) average updates a round. beta in round t is multiplied by decay^(t-1).
    """

    alpha: float
    beta: float
    scale: CorrectionScale = "relative"
    decay: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise UserError(f"alpha is {self.alpha!r}; allowed: from 0 to below 1")
        if not self.beta >= 0:
            raise UserError(f"beta is {self.beta!r}; it must be at least 0")
        if self.scale not in ("relative", "absolute"):
            raise UserError(f"scale is {self.scale!r}; allowed: relative, absolute")
        if not 0 < self.decay <= 1:
            raise UserError(f"decay is {self.decay!r}; allowed: above 0 to 1")

    def __call__(self, now: Round, rows: Tensor) -> Tensor:
        directions = cluster_directions(trainable(now, now.models), now.replies, now.groups)
        beta = self.beta * self.decay ** (now.number - 1)
        if self.scale == "relative":
            beta *= stretch(now, rows, directions)
        return corrected(now, rows, directions, self.alpha, beta)


@dataclass(frozen=True, kw_only=True)
class AdaptiveCorrection:
    """The relative correction with alpha and beta set from what the clusters' directions say.

    alpha_t = alpha (1 - max(0, agreement)): where the clusters pull one way, the present is reliable and needs no
    history; where they cancel, what is left of them is mostly chance, and the history smooths it. beta_t starts at beta
    and is multiplied every round by exp(RATE cos(-h, u)): as long as the clusters still pull where the last corrections
    went, these were too short; once they pull back, too long.
    """

    alpha: float
    beta: float

    def __call__(self, now: Round, rows: Tensor) -> Tensor:
        directions = cluster_directions(trainable(now, now.models), now.replies, now.groups)
        beta: float = now.memory.get("cfic.beta", self.beta)
        if "cfic.h" in now.memory:
            past = -now.memory["cfic.h"].double()
            lengths = max(float(past.norm()) * directions.length, STANDSTILL)
            beta *= math.exp(RATE * float(past @ directions.mean) / lengths)
        now.memory["cfic.beta"] = beta
        alpha = self.alpha * (1 - max(0.0, directions.agreement))
        return corrected(now, rows, directions, alpha, beta * stretch(now, rows, directions))


def trainable(now: Round, rows: Tensor) -> Tensor:
    """The trainable part of the one global model."""
    return rows[0, : now.fleet.layout.trainable]


def stretch(now: Round, rows: Tensor, directions: Directions) -> float:
    """By what u has to be multiplied to be as long as the round's average update."""
    update = trainable(now, rows).double() - trainable(now, now.models).double()
    return float(update.norm()) / max(directions.length, STANDSTILL)


def corrected(now: Round, rows: Tensor, directions: Directions, alpha: float, beta: float) -> Tensor:
    """The rows after one step of the correction; it is remembered, and what was done is noted for the report."""
    h = -beta * directions.mean
    if "cfic.h" in now.memory:
        h.add_(now.memory["cfic.h"], alpha=alpha)
    now.memory["cfic.h"] = h.float()
    now.notes["correction"] = {
        "clusters": len(directions.shares),
        "agreement": directions.agreement,
        "alpha": alpha,
        "beta": beta,
        "length": float(h.norm()),
    }
    new = rows.clone()
    new[0, : len(h)] -= now.memory["cfic.h"]
    return new
