"""Replies that come late: moved to where the model is now, and their weights (REFL, Abdelmoniem et al.)."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from covey.arrays import Array
from covey.core import ROUNDS_OF_SUMS, Mixing, Reply, Round, Shows, part
from covey.settings import Share


def from_here(now: Round) -> list[Reply]:
    """The replies as if they had started from the present models: w + (w_k - w as it was sent)."""
    return [
        reply
        if reply.vector is None
        else replace(reply, vector=now.models[reply.slot] + (reply.vector - now.start_of(reply)))
        for reply in now.replies
    ]


def staleness(now: Round) -> Array:
    """How many rounds ago each reply's task was sent."""
    return np.array([now.number - now.sent.get(reply.id, now.number) for reply in now.replies], float)


def refl_weights(late: Array, deviation: Array, beta: float) -> Array:
    """1 for fresh replies, (1 - beta) / (1 + late) + beta (1 - exp(-d / largest d)) for late ones."""
    boost = 1 - np.exp(-deviation / max(float(deviation.max(initial=0.0)), 1e-30))
    return np.where(late > 0, (1 - beta) / (1 + late) + beta * boost, 1.0)


@part("mix", "fresh-and-late")
class FreshAndLate:
    """Late replies count less the older they are, and more the further they would move the fresh ones' mean (REFL).

    w <- w + sum of c_k u_k / sum of c_k; c_k = 1 for a fresh update u_k, else (1 - beta) / (1 + staleness) +
    beta (1 - exp(-d_k / largest d)), where d_k = ||(u_k + n u) / (n + 1) - u||^2 / ||u||^2 for the mean u of n fresh
    updates.

    Args:
        beta: how much a late reply's deviation counts beside its age.
    """

    beta: Share = 0.35

    shows: ClassVar[Shows] = Shows(what="single updates, how far the late ones lie", instead=ROUNDS_OF_SUMS)

    def __call__(self, now: Round) -> Mixing:
        now.replies = from_here(now)
        late, count = staleness(now), len(now.models)
        slots = np.array([reply.slot for reply in now.replies])
        matrix = np.hstack([np.eye(count), np.zeros((count, len(now.replies)))])
        for slot in np.unique(slots):
            here = np.flatnonzero(slots == slot)
            weight = refl_weights(late[here], deviations(now, here, late[here] > 0), self.beta)
            matrix[slot, slot] = 0.0
            matrix[slot, count + here] = weight / weight.sum()
        return Mixing(factors=[csr_array(matrix)])


def deviations(now: Round, places: NDArray[np.int64], late: NDArray[np.bool_]) -> Array:
    """d_k of the late replies among these; 0 for fresh ones, and for all where none is fresh."""
    replies = [now.replies[place] for place in places]
    moves = torch.stack([r.vector - now.models[r.slot] for r in replies if r.vector is not None]).double()
    fresh = moves[torch.from_numpy(~late)]
    if not len(fresh):
        return np.zeros(len(places))
    mean = fresh.mean(dim=0)
    away = (moves - mean).square().sum(dim=1) / (len(fresh) + 1) ** 2
    return np.where(late, away.numpy() / max(float(mean.square().sum()), 1e-30), 0.0)
