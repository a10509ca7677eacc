"""Applying a method's matrices to the bank, and counting what travels between peers for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from covey.core import Mixing, Reply
from covey.mix.combine import combine


def apply_mixings(mixings: Sequence[Mixing], bank: Tensor, replies: Sequence[Tensor]) -> Tensor:
    """The new rows; columns that no mixing names stay as they are."""
    if len(mixings) == 1 and mixings[0].columns == slice(None):
        return combine([csr_array(f) for f in mixings[0].factors], [bank, *replies])
    if not mixings:
        return bank
    out = bank.new_zeros((mixings[0].factors[-1].shape[0], bank.shape[1]))
    kept = min(len(out), len(bank))
    out[:kept] = bank[:kept]
    for mixing in mixings:
        combine(
            [csr_array(f) for f in mixing.factors],
            [bank[:, mixing.columns], *(row[mixing.columns] for row in replies)],
            out=out[:, mixing.columns],
        )
    return out


def links(mixing: Mixing, seats: Sequence[int], replies: Sequence[Reply]) -> dict[tuple[int, int], int]:
    """How many rows go from one client to another: every non-zero entry that takes from somebody else's row.

    Old row i and the reply of client `seats[i]` lie at the same client; row i of every product does too.
    """
    rows = np.asarray(seats, dtype=np.int64)
    columns = np.array([*seats, *(reply.id for reply in replies)], dtype=np.int64)
    sent = []
    for factor in mixing.factors:
        matrix = csr_array(factor).tocoo()
        pairs = np.stack([columns[matrix.col], rows[matrix.row]], axis=1)[matrix.data != 0]
        sent.append(np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0))
        columns = rows
    pairs, counts = np.unique(np.concatenate(sent), axis=0, return_counts=True)
    return {(a, b): n for (a, b), n in zip(pairs.tolist(), counts.tolist(), strict=True)}
