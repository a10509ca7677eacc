"""Averages inside groups that were made or changed in this very round."""

from collections.abc import Mapping

import numpy as np
from scipy.sparse import csr_array

from covey.core import Mixing, Round


def regrouped(now: Round, count: int, values: np.ndarray, parents: Mapping[int, int] | None = None) -> Mixing:
    """Row g of `count` becomes the average of the replies of group g's clients, weighted by `values`.

    A group without a reply keeps its row; a new one without a reply takes that of its parent (row 0 where it has none).
    """
    old = len(now.models)
    matrix = np.zeros((count, old + len(now.replies)))
    for group in range(count):
        places = [p for p, reply in enumerate(now.replies) if now.groups[reply.id] == group]
        total = sum(values[p] for p in places)
        if places and total > 0:
            matrix[group, [old + p for p in places]] = [values[p] / total for p in places]
        else:
            matrix[group, group if group < old else (parents or {}).get(group, 0)] = 1.0
    return Mixing(factors=[csr_array(matrix)])
