"""Writes the gradient of a convolution's weights for images of few places, with its channels in the lanes."""

from lanes.compiled import instructions as do
from lanes.compiled.tiles import best, split
from lanes.graph import Conv
from lanes.stages import Stage, looked_at
from lanes.winograd import odd_lines
from lanes.workspace import Tensor, Writer

LEAST_CHANNELS = 32  # two whole vectors of the widest kind
MOST_PLACES = 64  # of the output: above, the sums over lanes of the other kernel cost little


def suits(stage: Stage) -> bool:
    """Whether a convolution is better off with its channels in the lanes."""
    rows, columns = looked_at(stage)
    wide = isinstance(stage.kind, Conv) and stage.input.channels >= LEAST_CHANNELS
    return wide and rows * columns <= MOST_PLACES


def weight_gradient_turned(
    w: Writer, kind: Conv, delta: Tensor, x: Tensor, *, rows: int, columns: int
) -> do.TurnedGrad:
    """The gradient of all blocks, and the update of the weights with it; done when nobody needs these any more."""
    lanes, channels, outputs = w.isa.lanes, x.shape.channels, delta.shape.channels
    wide = -(-channels // lanes) * lanes
    row = odd_lines(wide)
    taps: list[tuple[int, int]] = []
    groups: list[tuple[int, int]] = []
    for kh in range(kind.kernel[0]):
        for kw in range(kind.kernel[1]):
            first = len(taps)
            for h in range(rows):
                for v in range(columns):
                    above = h * kind.stride[0] - kind.padding[0] + kh
                    left = v * kind.stride[1] - kind.padding[1] + kw
                    if 0 <= above < x.shape.rows and 0 <= left < x.shape.columns:
                        place = (above * x.shape.columns + left) * lanes * row
                        taps.append((h * delta.row + v * lanes, place))
            groups.append((first, len(taps) - first))
    tile = best(w.isa, outputs, wide // lanes)
    m_chunks, w_chunks = split(outputs, tile[0]), split(wide // lanes, tile[1])
    block, sums_tap = x.shape.rows * x.shape.columns * lanes * row, odd_lines(tile[0] * wide)
    return do.TurnedGrad(
        **x.by_row("x"),
        x_rows=x.shape.rows,
        x_columns=x.shape.columns,
        inputs=channels,
        channels=w.table([min(m, channels - 1) * x.plane for m in range(wide)]),
        wide=wide,
        turned=w.place(block * w.blocks),
        turned_block=block,
        turned_row=row,
        places=w.table([k * row for k in range(lanes)]),
        delta=delta.inside,
        delta_block=delta.block,
        delta_m=delta.plane,
        weight=kind.weight,
        taps=w.table(taps),
        groups=w.table(groups),
        group_count=len(groups),
        sums=w.place(len(groups) * sums_tap),
        sums_tap=sums_tap,
        gradient=w.place(tile[0] * channels * len(groups)),
        m_chunks=w.table(m_chunks),
        m_count=len(m_chunks),
        w_chunks=w.table(w_chunks),
        w_count=len(w_chunks),
    )
