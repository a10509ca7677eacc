"""Applying a method's matrices to the bank."""

from collections.abc import Sequence

from scipy.sparse import csr_array
from torch import Tensor

from covey.core import Mixing
from covey.parts.mix.combine import Each, combine, one_by_one
from covey.parts.mix.robust import robust_product


def apply_mixings(
    mixings: Sequence[Mixing], bank: Tensor, replies: Sequence[Tensor], each: Each = one_by_one
) -> Tensor:
    """The new rows; columns that no mixing names stay as they are. `each` does blocks of columns."""
    first = mixings[0] if len(mixings) == 1 else None
    if (
        first is not None
        and first.rule is None
        and isinstance(first.columns, slice)
        and first.columns == slice(None)
    ):
        return combine([csr_array(f) for f in mixings[0].factors], [bank, *replies], each=each)
    if not mixings:
        return bank
    out = bank.new_zeros((mixings[0].factors[-1].shape[0], bank.shape[1]))
    kept = min(len(out), len(bank))
    out[:kept] = bank[:kept]
    for mixing in mixings:
        factors = [csr_array(f) for f in mixing.factors]
        old, told = bank[:, mixing.columns], [row[mixing.columns] for row in replies]
        if mixing.rule is not None:
            out[:, mixing.columns] = robust_product(factors, old, told, mixing.rule)
        elif isinstance(mixing.columns, Tensor):
            out[:, mixing.columns] = combine(factors, [old, *told], each=each)
        else:
            combine(factors, [old, *told], out=out[:, mixing.columns], each=each)
    return out
