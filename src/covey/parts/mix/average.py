"""Averages: which share of the new rows comes from which reply."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from covey.core import MODEL_PER_CLIENT, Mixing, Reply, Round, Shows, by_weights, part

Weighting = Literal["samples", "equal", "batches"]


def weights(replies: Sequence[Reply], weighting: Weighting) -> np.ndarray:
    """One weight per reply, not normalised: its number of samples, 1, or its number of batches."""
    if weighting == "equal":
        return np.ones(len(replies))
    if weighting == "batches":
        return np.array([float(reply.stats["batches"]) for reply in replies])
    return np.array([float(reply.size) for reply in replies])


def weighted_rows(now: Round, values: np.ndarray) -> csr_array:
    """The matrix over `[old rows; replies]` that averages reply r into the row of its slot with weight `values[r]`.

    A row without a reply stays as it is.
    """
    count = len(now.models)
    to = np.array([reply.slot for reply in now.replies], dtype=np.int64)
    totals = np.bincount(to, weights=values, minlength=count)
    fed = totals[to] > 0
    untouched = np.flatnonzero(~(totals > 0))
    entries = np.concatenate([values[fed] / totals[to[fed]], np.ones(len(untouched))])
    at = (
        np.concatenate([to[fed], untouched]),
        np.concatenate([count + np.flatnonzero(fed), untouched]),
    )
    return csr_array((entries, at), shape=(count, count + len(values)))


@part("mix", "average")
class Average:
    """The weighted average of the replies that started from a model: w <- sum of n_k w_k / sum of n_k.

    A client that was drawn twice counts twice.
    """

    weighting: Weighting = "samples"

    shows = property(by_weights)

    def __call__(self, now: Round) -> Mixing:
        drawn = np.array([max(1, now.chosen.count(reply.id)) for reply in now.replies])
        return Mixing(factors=[weighted_rows(now, drawn * weights(now.replies, self.weighting))])


@part(
    "mix",
    "own",
    shows=Shows(
        what="every client's own model",
        instead="nothing is averaged here that could hide anybody: leave [private] out",
        in_updates=True,
    ),
    needs=(MODEL_PER_CLIENT,),
)
def keep_own(now: Round) -> Mixing:
    """Every reply takes the place of the row it started from; nothing is averaged (each client alone)."""
    return Mixing(factors=[weighted_rows(now, np.ones(len(now.replies)))])
