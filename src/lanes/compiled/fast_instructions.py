"""The fields of Winograd convolutions in a program; see `instructions` and `transforms`."""

from typing import NamedTuple


class Strip(NamedTuple):
    """The tiles of a Winograd convolution (`transforms`), row by row; a strip of them is worked on at a time."""

    x: int
    x_block: int
    x_m: int
    x_row: int
    x_rows: int
    x_wide: int  # columns from x on to the end of its right margin
    pad: int
    channels: int
    step: int  # outputs of a tile, along one side
    size: int  # inputs of a tile, along one side
    made: int  # places that the transform makes of them, along one side
    across: int  # tiles in a row of them
    per: int  # tiles of a block
    strips: int  # table of (first tile, tiles)
    strip_count: int
    tiles: int  # of the largest strip
    padded: int  # scratch: a tile of x that reaches over the border, with zeros there
    v: int  # scratch: transformed inputs
    v_place: int  # between two places of a tile
    into: int  # which transform


class Fast(NamedTuple):
    """A convolution of a `Strip`; what does not go into y as it is waits in a scratch of one tile of some channels."""

    u: int  # transformed weights
    u_place: int
    bias: int  # -1: none
    zeros: int  # stands for the bias where there is none
    y: int
    y_block: int
    y_m: int
    y_row: int
    y_rows: int
    y_columns: int
    out: int  # which transform
    products: int  # scratch
    products_place: int
    tile: int  # scratch
    parts: int  # table of (first channel, channels)
    part_count: int
    rows: int  # channels in a register tile
    columns: int  # and tiles, where all blocks are worked on at once
    relu: int
    accumulate: int
    pooled: int


class FastGrad(NamedTuple):
    """The gradient by the weights of a Winograd convolution, still transformed: sums[place][channel][output]."""

    delta: int
    delta_block: int
    delta_row: int
    delta_rows: int
    delta_columns: int
    wide: int  # outputs, rounded up to whole vectors
    outputs: int  # table: where the outputs' deltas are, from the first one's on
    places: int  # table 0, wide, 2 wide ...
    turned: int  # scratch
    turned_place: int
    d: int  # scratch
    d_place: int
    sums: int
    sums_place: int
    rows: int  # channels in a register tile
    w_chunks: int  # table of (first vector of outputs, vectors)
    w_count: int
    into: int  # which transform


class FastWeights(NamedTuple):
    """The weights of a convolution, transformed, once per batch; flipped: for the gradient by its input."""

    weight: int
    outputs: int
    inputs: int
    kernel: int
    size: int
    flipped: int
    apart: int  # scratch
    u: int
    u_place: int  # between two places, in the scratch too
    into: int  # which transform


class FastSum(NamedTuple):
    """The sums of a `FastGrad` transformed back, once per batch, and added to the gradient."""

    sums: int
    sums_place: int  # between two places, in the scratch too
    channels: int
    outputs: int
    wide: int
    kernel: int
    size: int
    apart: int  # scratch
    gradient: int
    back: int  # which transform


class WholeGrad(NamedTuple):
    """The gradient by the weights of a Winograd convolution of all blocks, of whose delta a `Strip` precedes this.

    The gradient of some outputs' weights is complete at a time, and they are updated at once.
    """

    x: int
    x_block: int
    x_row: int
    x_rows: int
    x_wide: int  # columns from x on to the end of its right margin
    pad: int
    inputs: int  # channels of x
    channels: int  # table: where these are, from the first one's on
    wide: int  # channels, rounded up to whole vectors
    places: int  # table 0, wide, 2 wide ...
    turned: int  # scratch: a tile of x with channels in the lanes
    turned_place: int
    v: int  # scratch: transformed inputs, [place][tile and sample][channel]
    v_place: int
    into: int  # which transform
    sums: int  # scratch: [place][output][channel]
    sums_place: int
    back: int  # which transform
    taps: int  # of the kernel, along one side
    apart: int  # scratch: [tap][output][channel]
    apart_tap: int
    gradient: int  # scratch: [output][channel][tap]
    weight: int
    parts: int  # table of (first output, outputs)
    part_count: int
    rows: int  # outputs in a register tile
    w_chunks: int  # table of (first vector of channels, vectors)
    w_count: int
