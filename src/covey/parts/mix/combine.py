"""The one multiplication behind every method: new rows = factors applied to the old rows and the replies."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from torch import Tensor

Factor = csr_array | csr_matrix
Each = Callable[[Callable[[int], None], Sequence[int]], None]  # calls a function for each of some places


def one_by_one(work: Callable[[int], None], places: Sequence[int]) -> None:
    """One place after another, here."""
    for place in places:
        work(place)


BLOCK_COLUMNS = 1 << 15
"""Columns that are worked on at a time: one output row of them (256 KB in float64) stays in a core's cache, and
PyTorch adds so few numbers in one thread, without a barrier among threads after every row."""


def combine(
    factors: Sequence[Factor],
    rows: Tensor | Sequence[Tensor],
    block: int | None = None,
    out: Tensor | None = None,
    each: Each = one_by_one,
) -> Tensor:
    """Apply sparse `factors`, first one first, to `rows`: ``new = F_k ... F_2 F_1 rows``.

    `rows` is one tensor ``[m, P]`` or a sequence of ``[m_i, P]`` and ``[P]`` tensors that are stacked in
    thought only, so that ``[bank, *replies]`` costs no copy. The work goes through `block` columns at a time
    (all factors on one block), therefore the only extra memory is the result plus a few megabytes; with
    ``out=bank`` not even that, because a block is read completely before it is written. `each` does the blocks.

    Data is float32, sums are float64 in ascending order of column and rounded once at the end: the result
    is the rounded exact mean in all but rare ties, and the same bits for any block size and any number of
    threads. A zero weight is no weight: a row that no other uses is not read, and spoils nothing if broken.
    """
    stack = [rows] if isinstance(rows, Tensor) else list(rows)
    _check_shapes(factors, stack)
    matrices, place = _planned(_merged(factors))
    width = stack[0].shape[-1]
    if out is None:
        out = stack[0].new_empty((len(place), width))
    step = block or BLOCK_COLUMNS

    def work(start: int) -> None:
        columns = min(step, width - start)
        parts = (tensor.narrow(-1, start, columns) for tensor in stack)
        rows = [row for part in parts for row in (part.unbind() if part.dim() == 2 else (part,))]
        for matrix in matrices:
            product = _product(matrix, rows, columns)
            rows = list(product)
        out[:, start : start + columns] = product.float()[place]

    each(work, range(0, width, step))
    return out


def _product(matrix: csr_array, rows: Sequence[Tensor], width: int) -> Tensor:
    """matrix @ rows in float64, row by row in ascending order of column; rows without a weight are not read."""
    result = torch.zeros(matrix.shape[0], width, dtype=torch.float64)
    starts, columns, weights = matrix.indptr.tolist(), matrix.indices.tolist(), matrix.data.tolist()
    for target, start, stop in zip(result, starts[:-1], starts[1:], strict=True):
        for column, weight in zip(columns[start:stop], weights[start:stop], strict=True):
            target.add_(rows[column], alpha=weight)
    return result


def _planned(factors: Sequence[Factor]) -> tuple[list[csr_array], NDArray[np.intp]]:
    """The rows of each factor that the next one asks for, equal ones once, and the place of each row of the last.

    The fully connected graph has one distinct row, a broadcast to a cluster one for each cluster; of the factor before
    a broadcast nothing is worked out but the representatives' rows.
    """
    last, place = _distinct(factors[-1])
    matrices = [last]
    for factor in reversed(factors[:-1]):
        asked, columns = np.unique(matrices[0].indices, return_inverse=True)
        matrix, places = _distinct(factor[asked])
        matrices[0].indices = places[columns].astype(np.int32)
        matrices.insert(0, matrix)
    return matrices, place


def _distinct(factor: Factor) -> tuple[csr_array, NDArray[np.intp]]:
    """The distinct rows of a factor, without zeros, and the place of each row among them."""
    data, indices, indptr = factor.data.astype(np.float64), factor.indices.copy(), factor.indptr.copy()
    matrix = csr_array((data, indices, indptr), shape=factor.shape)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    seen: dict[bytes, int] = {}
    places = np.empty(matrix.shape[0], dtype=np.intp)
    chosen: list[int] = []
    for row, (start, stop) in enumerate(zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)):
        key = matrix.indices[start:stop].tobytes() + matrix.data[start:stop].tobytes()
        places[row] = seen.setdefault(key, len(seen))
        if places[row] == len(chosen):
            chosen.append(row)
    return (matrix if len(chosen) == matrix.shape[0] else matrix[chosen]), places


def _merged(factors: Sequence[Factor]) -> list[Factor]:
    """A first factor that only picks rows, each at most once, is no arithmetic: the next one can pick itself."""
    if len(factors) == 1 or not _only_picks(factors[0]):
        return list(factors)
    return [csr_array(factors[1] @ factors[0]), *factors[2:]]


def _only_picks(factor: Factor) -> bool:
    one_each = factor.nnz == factor.shape[0] and bool((np.diff(factor.indptr) == 1).all())
    return one_each and bool((factor.data == 1).all()) and len(np.unique(factor.indices)) == factor.nnz


def _check_shapes(factors: Sequence[Factor], stack: Sequence[Tensor]) -> None:
    """A method that builds wrong matrices is a programmer's error: says at once which factor is wrong."""
    if not factors or not stack:
        raise ValueError("combine needs at least one factor and one row")
    height = sum(len(tensor) if tensor.dim() == 2 else 1 for tensor in stack)
    for number, factor in enumerate(factors):
        if factor.shape[1] != height:
            raise ValueError(f"factor {number} has {factor.shape[1]} columns but is applied to {height} rows")
        height = factor.shape[0]
