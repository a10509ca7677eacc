"""Applying a method's matrices to the bank, and counting what travels between peers for it."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.sparse import csr_array
from torch import Tensor

from covey.core import Mixing, Reply
from covey.mix.combine import combine


def apply_mixings(mixings: Sequence[Mixing], bank: Tensor, replies: Sequence[Tensor]) -> Tensor:
    """The new rows; columns that no mixing names stay as they are."""
    if len(mixings) == 1 and mixings[0].columns == slice(None):
        return combine([csr_array(f) for f in mixings[0].factors], [bank, *replies])
    out: Tensor | None = None
    for mixing in mixings:
        part = combine(
            [csr_array(f) for f in mixing.factors],
            [bank[:, mixing.columns], *(row[mixing.columns] for row in replies)],
        )
        if out is None:
            out = bank.new_zeros((len(part), bank.shape[1]))
            out[: len(bank)] = bank[: len(part)]
        out[:, mixing.columns] = part
    return bank if out is None else out


def links(mixing: Mixing, seats: Sequence[int], replies: Sequence[Reply]) -> dict[tuple[int, int], int]:
    """How many rows go from one client to another: every non-zero entry that takes from somebody else's row.

    Old row i and the reply of client `seats[i]` lie at the same client; row i of every product does too.
    """
    counts: dict[tuple[int, int], int] = {}
    columns = [*seats, *(reply.id for reply in replies)]
    for factor in mixing.factors:
        matrix = csr_array(factor).tocoo()
        pairs = {
            (columns[j], seats[i])
            for i, j, value in zip(
                matrix.row.tolist(), matrix.col.tolist(), matrix.data.tolist(), strict=True
            )
            if value != 0 and columns[j] != seats[i]
        }
        for pair in pairs:
            counts[pair] = counts.get(pair, 0) + 1
        columns = list(seats)
    return counts
