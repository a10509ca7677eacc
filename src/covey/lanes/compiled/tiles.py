"""Which register tiles exist, and which of them suits a loop of given size."""

from collections.abc import Sequence
from itertools import pairwise

from covey.lanes.compiled.isa import Isa

ROW = 16  # a tile shape is one number: rows * ROW + columns
MOST_ROWS, MOST_COLUMNS = 8, 8


def shapes(isa: Isa) -> list[tuple[int, int]]:
    """(rows, columns) of all tiles whose accumulators, inputs and one weight fit into the registers."""
    return [
        (rows, columns)
        for rows in range(1, MOST_ROWS + 1)
        for columns in range(1, MOST_COLUMNS + 1)
        if rows * columns + columns + 1 <= isa.registers
    ]


def split(size: int, most: int) -> list[tuple[int, int]]:
    """(start, length) of the fewest nearly equal pieces of at most `most`."""
    count = -(-size // most)
    edges = [size * i // count for i in range(count + 1)]
    return [(a, b - a) for a, b in pairwise(edges)]


def stretches(pieces: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(start, length, how many) of neighbouring pieces of one length."""
    found: list[tuple[int, int, int]] = []
    for start, length in pieces:
        if found and found[-1][1] == length:
            first, _, count = found[-1]
            found[-1] = (first, length, count + 1)
        else:
            found.append((start, length, 1))
    return found


def _cycles(rows: int, columns: int) -> float:
    """Of a tile's step: two multiply-adds or two loads a cycle, latency of four; a little for the borders."""
    return max(rows * columns / 2, (rows + columns) / 2, 4) + 0.02 * (rows + columns)


def best(isa: Isa, rows: int, columns: int, most_columns: int | None = None) -> tuple[int, int]:
    """The tile shape with the fewest cycles for a loop of `rows` times `columns`."""

    def total(shape: tuple[int, int]) -> float:
        return sum(_cycles(r, c) for _, r in split(rows, shape[0]) for _, c in split(columns, shape[1]))

    return min((s for s in shapes(isa) if most_columns is None or s[1] <= most_columns), key=total)
