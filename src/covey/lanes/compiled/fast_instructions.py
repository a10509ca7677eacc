"""The fields of Winograd convolutions in a program; see `instructions` and `transforms`."""

from typing import NamedTuple


class Strip(NamedTuple):
    """The tiles of a Winograd convolution (`transforms`): each row of them is worked on in `parts` of `tiles`."""

    x: int
    x_block: int
    x_m: int
    x_row: int
    x_rows: int
    pad: int
    channels: int
    step: int  # outputs of a tile, along one side
    size: int  # inputs of a tile, along one side
    tiles: int
    parts: int
    tile_rows: int
    width: int  # floats in a row of x under the tiles
    padded: int  # scratch: rows of x, with zeros above or below
    v: int  # scratch: transformed inputs
    into: int  # which transform


class Fast(NamedTuple):
    """A convolution of a `Strip`; y is a scratch of some channels' tiles if a 2 x 2 maximum follows."""

    u: int  # transformed weights
    bias: int  # -1: none
    y: int
    y_block: int
    y_m: int
    y_row: int
    outputs: int
    out: int  # which transform
    products: int  # scratch
    most: int  # channels of the scratch
    m_chunks: int  # table of (first channel, channels)
    m_count: int
    w_chunks: int  # table of (first tile, tiles)
    w_count: int
    zeros: int  # table
    relu: int
    pooled: int


class FastGrad(NamedTuple):
    """The gradient by the weights of a Winograd convolution, still transformed: sums[place][channel][output]."""

    delta: int
    delta_block: int
    delta_row: int
    wide: int  # outputs, rounded up to whole vectors
    outputs: int  # table: where the outputs' deltas are, from the first one's on
    places: int  # table 0, wide, 2 wide ...
    turned: int  # scratch
    d: int  # scratch
    sums: int
    m_chunks: int  # table of (first channel, channels)
    m_count: int
    w_chunks: int  # table of (first vector of outputs, vectors)
    w_count: int
    zeros: int  # table
    into: int  # which transform


class FastWeights(NamedTuple):
    """The weights of a convolution, transformed, once per batch; flipped: for the gradient by its input."""

    weight: int
    outputs: int
    inputs: int
    kernel: int
    size: int
    flipped: int
    pairs: int  # outputs times inputs, rounded up to whole vectors
    apart: int  # scratch
    u: int
    into: int  # which transform


class FastSum(NamedTuple):
    """The sums of a `FastGrad` transformed back, once per batch, and added to the gradient."""

    sums: int
    channels: int
    outputs: int
    wide: int
    kernel: int
    size: int
    apart: int  # scratch
    gradient: int
    back: int  # which transform
