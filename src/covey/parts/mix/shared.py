"""One model per group, with the first layers common to all groups if wanted."""

import numpy as np
from scipy.sparse import csr_array

from covey.core import Mixing, Round, by_weights, part
from covey.errors import UserError
from covey.parts.mix.average import Weighting, weighted_rows, weights
from covey.training.rows import Layout


def leading_columns(layout: Layout, tensors: int) -> int:
    """Columns of the first `tensors` tensors of a row (a layer usually has two: weight and bias)."""
    if not 0 <= tensors <= len(layout.shapes):
        raise UserError(
            f"n_shared is {tensors}; the model has {len(layout.shapes)} tensors (0 shares nothing)"
        )
    return int([0, *(span.stop for span in layout.spans.values())][tensors])


@part("mix", "group-average")
class GroupAverage:
    """The weighted average inside every group, with the first layers common to all if wanted.

    w_j <- sum of n_k w_k / sum of n_k over the replies of group j; a group without replies stays as it is.
    The first `n_shared` tensors are averaged over the replies of all groups and are the same in all rows.
    """

    weighting: Weighting = "samples"
    n_shared: int = 0

    shows = property(by_weights)

    def __call__(self, now: Round) -> list[Mixing]:
        values = weights(now.replies, self.weighting)
        own = weighted_rows(now, values)
        cut = leading_columns(now.fleet.layout, self.n_shared)
        if not cut:
            return [Mixing(factors=[own])]
        rows = len(now.models)
        everybody = csr_array(np.hstack([np.zeros((rows, rows)), np.tile(values / values.sum(), (rows, 1))]))
        mixings = [Mixing(factors=[everybody], columns=slice(0, cut))]
        if cut < now.models.shape[1]:
            mixings.append(Mixing(factors=[own], columns=slice(cut, None)))
        return mixings
