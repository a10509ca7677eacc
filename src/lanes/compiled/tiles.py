"""Which register tiles exist, and which of them suits a loop of given size."""

from dataclasses import dataclass, replace
from itertools import pairwise

from lanes.compiled.isa import Isa

ROW = 16  # a tile shape is one number: rows * ROW + columns
NARROW = ROW**2  # more: a tile for blocks of which at most half of the lanes hold a sample
FEWEST_LANES = 4  # of half a vector: fewer take longer to put side by side than they save
MOST_ROWS, MOST_COLUMNS = 8, 8
MOST_VECTORS = 3  # in a row of a tile where two columns share a vector


def parts(isa: Isa) -> list[int]:
    """How many columns share a vector: one, or two where at most half of the lanes hold a sample.

    Four that share one took 0.005 ms off a step of 0.117 (LeNet-5, four samples), and twice as long to compile.
    """
    return [1, 2] if isa.lanes >= 2 * FEWEST_LANES else [1]


def vectors(columns: int, together: int) -> int:
    """Of a tile's row; `together` columns share one."""
    return -(-columns // together)


def shapes(isa: Isa, together: int = 1) -> list[tuple[int, int]]:
    """(rows, columns) of all tiles whose accumulators, inputs and one weight fit into the registers.

    Where columns share vectors, these are full, or there is one that is not.
    """
    most = MOST_COLUMNS if together == 1 else MOST_VECTORS
    widths = [*range(1, together), *(together * count for count in range(1, most + 1))]
    return [
        (rows, columns)
        for rows in range(1, MOST_ROWS + 1)
        for columns in widths
        if (rows + 1) * vectors(columns, together) + 1 <= isa.registers
    ]


def split(size: int, most: int, together: int = 1) -> list[tuple[int, int]]:
    """(start, length) of the fewest nearly equal pieces of at most `most`; the last may not fill its vector."""
    whole, rest = divmod(size, together)
    count = vectors(whole, max(1, most // together))
    edges = [together * (whole * i // count) for i in range(count + 1)] if count else [0]
    pieces = [(a, b - a) for a, b in pairwise(edges)]
    return [*pieces, (size - rest, rest)] if rest else pieces


def _cycles(rows: int, columns: int, together: int = 1) -> float:
    """Of a tile's step: two multiply-adds or two loads per cycle, latency of four; a little for the borders."""
    count = vectors(columns, together)
    return max(rows * count / 2, (rows + columns) / 2, 4) + 0.02 * (rows + count)


def _overhead(rows: int, columns: int) -> float:
    """Of a tile, in cycles: setting up its loops, loading and storing its accumulators."""
    return 20 + 1.5 * rows * columns


def best(isa: Isa, rows: int, columns: int, together: int = 1) -> tuple[int, int]:
    """The tile shape with the fewest cycles for a loop of `rows` times `columns`."""

    def total(shape: tuple[int, int]) -> float:
        return sum(
            _cycles(r, c, together)
            for _, r in split(rows, shape[0])
            for _, c in split(columns, shape[1], together)
        )

    return min(shapes(isa, together), key=total)


@dataclass(frozen=True, kw_only=True)
class Span:
    """`tiles` tiles of `columns` columns from column `start` on, for which taps `skip` to `skip + run` matter."""

    start: int
    columns: int
    tiles: int
    skip: int
    run: int


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Which columns of x an output column reads: column * stride - pad + tap, if that is in 0..width."""

    taps: int
    stride: int
    pad: int
    width: int

    def of(self, start: int, end: int) -> tuple[int, int]:
        """(first tap, taps) that read anything but margin for some of the columns start to end."""
        low = max(0, self.pad - (end - 1) * self.stride)
        high = min(self.taps, self.width + self.pad - start * self.stride)
        return (low, high - low) if high > low else (0, 0)


def cover(
    isa: Isa, channels: int, columns: int, reach: Reach, steps: float, together: int = 1
) -> tuple[int, list[Span]]:
    """How to tile the rows of a convolution's output: (channels per tile, spans of columns) with the fewest cycles.

    `steps` is the number of taps over rows and input channels, for each of which the taps of `reach` are run.
    Near the borders, where few of these matter, narrow tiles can be cheaper than wide ones. `together` columns share a
    vector.
    """
    choices = []
    for rows in range(1, min(channels, MOST_ROWS) + 1):
        widths = [c for r, c in shapes(isa, together) if r == rows]
        heights = [length for _, length in split(channels, rows)]
        if heights[-1] == rows:  # the last piece is the largest
            choices.append((*_cheapest(columns, widths, heights, reach, steps, together), rows))
    _, spans, rows = min(choices, key=lambda choice: choice[0])
    return rows, spans


def _cheapest(
    columns: int, widths: list[int], heights: list[int], reach: Reach, steps: float, together: int
) -> tuple[float, list[Span]]:
    """The cheapest way to cut the columns into tiles of these widths, by dynamic programming."""
    cost = {
        width: (
            sum(_cycles(h, width, together) for h in heights) * steps,
            sum(_overhead(h, width) for h in heights),
        )
        for width in widths
    }
    best_at: list[tuple[float, int]] = [(0.0, 0)]  # (cycles of the columns before, width of the last tile)
    for end in range(1, columns + 1):
        best_at.append(
            min(
                (best_at[end - w][0] + cost[w][0] * reach.of(end - w, end)[1] + cost[w][1], w)
                for w in widths
                if w <= end
            )
        )
    pieces, end = [], columns
    while end:
        width = best_at[end][1]
        pieces.append((end - width, width, *reach.of(end - width, end)))
        end -= width
    spans: list[Span] = []
    for start, width, skip, run in reversed(pieces):
        last = spans[-1] if spans else None
        if last and (last.columns, last.skip, last.run) == (width, skip, run):
            spans[-1] = replace(last, tiles=last.tiles + 1)
        else:
            spans.append(Span(start=start, columns=width, tiles=1, skip=skip, run=run))
    return best_at[columns][0], spans
