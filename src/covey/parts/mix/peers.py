"""What travels between peers for a method's matrices."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from covey.arrays import Integers
from covey.core import Mixing, Reply


class Links(NamedTuple):
    """How many rows go over each link that is used: three arrays of one length, in order of the senders' rows."""

    sender: Integers
    receiver: Integers
    rows: Integers


def peer_links(
    mixings: Sequence[Mixing], width: int, holders: Sequence[int], replies: Sequence[Reply]
) -> Iterator[tuple[Links, int]]:
    """The links of every mixing between peers, and how many bytes one row of it has; `width`: of the bank."""
    for mixing in mixings:
        if mixing.peers:
            columns = mixing.columns
            count = len(range(*columns.indices(width)) if isinstance(columns, slice) else columns)
            yield links(mixing, holders, replies), 4 * count


def links(mixing: Mixing, holders: Sequence[int], replies: Sequence[Reply]) -> Links:
    """How many rows go from one client to another: every non-zero entry that takes from somebody else's row.

    Old row i and the reply of client `holders[i]` lie at the same client, as does row i of every product. A client that
    takes from both of another's rows in one factor gets one message.
    """
    clients = np.asarray(holders, dtype=np.int64)
    row_of = {client: row for row, client in enumerate(holders)}
    places = np.array([*range(len(holders)), *(row_of[reply.id] for reply in replies)], dtype=np.int64)
    total = csr_array((len(holders), len(holders)), dtype=np.int64)
    for factor in mixing.factors:
        matrix = csr_array(factor, copy=True)
        matrix.eliminate_zeros()
        taken = csr_array((np.ones(matrix.nnz, np.int64), places[matrix.indices], matrix.indptr), total.shape)
        taken.sum_duplicates()
        taken.data[:] = 1
        total = total + taken
        places = places[: len(holders)]
    found = total.T.tocsr().tocoo()  # ascending by sender
    others = found.row != found.col
    return Links(
        sender=clients[found.row[others]], receiver=clients[found.col[others]], rows=found.data[others]
    )
