"""The instruction set of the training machine: what the planner writes and the kernels read.

A program is a table of int64 rows `[operation, field, field, ...]`. Places are offsets into the workspace or
the model's row, in floats (marks: in bytes). A tensor of the workspace is `[block][channel][row][column][lane]`
with one sample per lane; "block" fields are the distance between two groups of samples, "m" fields between two
channels. Tables are offsets into the program's int64 constants.
"""

from typing import NamedTuple


class Gather(NamedTuple):
    """Samples of the batch into lanes: y[block][place[i]][lane] = x[sample, i]."""

    y: int
    y_block: int
    features: int
    places: int  # table: where feature i goes


class Scatter(NamedTuple):
    """Lanes back into samples: out[sample, i] = x[block][i][lane]."""

    x: int
    x_block: int
    features: int
    places: int  # table 0, L, 2L ...


class Zero(NamedTuple):
    """y[0:size] = 0, in every block if these are apart."""

    y: int
    y_block: int
    size: int


class Tiling(NamedTuple):
    """How a convolution's loops are cut into tiles."""

    m_chunks: int  # table of (first channel, channels)
    m_count: int
    chunks: int  # table of (first column, columns a tile, tiles, first tap of a run, taps); ConvGrad: (first tap, taps)
    tiles: int


class Conv(NamedTuple):
    """y[m, h, w] = start + sum over taps of weight * x: convolution, and its gradient by x (taps flipped).

    Row h of y reads rows h * stride - pad + kh of x, kh from 0 to `heights`; those outside 0..x_rows are zero
    and left out. For each kh the table has `per` pairs (offset in the weights, offset in x), every pair the
    start of a run of `run` taps that advance by `w_run` and `x_run`.
    """

    x: int
    x_block: int
    x_row: int
    x_step: int
    x_rows: int
    stride: int
    pad: int
    weight: int
    weight_m: int
    bias: int  # -1: none
    taps: int  # table
    heights: int
    per: int
    w_run: int
    x_run: int
    y: int
    y_block: int
    y_m: int
    y_row: int
    y_step: int
    y_rows: int
    accumulate: int
    relu: int
    tilings: int  # table of two `Tiling`s: for blocks of which more than half is full, and for others


class Rows(NamedTuple):
    """Where the rows of a tensor are."""

    x: int
    x_block: int
    x_m: int
    x_row: int


class Pooling(NamedTuple):
    """The 2 x 2 maximum of a tensor's rows, or of a `Conv` whose y is a scratch of two rows per channel."""

    y: int
    y_block: int
    y_m: int
    y_row: int
    channels: int
    rows: int
    columns: int
    marks: int  # which of the four won (4: none, the ReLU is shut)
    marks_block: int
    marks_m: int
    relu: int


class Delta(NamedTuple):
    """The gradient by a layer's output from the gradient by what pooling and ReLU made of it."""

    d: int
    d_block: int
    y: int  # the stage's output, for the ReLU
    y_block: int
    y_m: int
    y_row: int
    marks: int
    marks_block: int
    delta: int
    delta_block: int
    delta_m: int
    delta_row: int
    channels: int
    rows: int
    columns: int
    pooled: int
    relu: int
    bias_gradient: int  # -1: none
    total: int  # scratch: one vector


class ConvGrad(NamedTuple):
    """gradient[m, tap] += sum over places and lanes of delta[m, place] * x[place + tap]."""

    x: int
    x_block: int
    x_row: int
    x_step: int
    x_rows: int
    stride: int
    pad: int
    delta: int
    delta_block: int
    delta_m: int
    delta_row: int
    rows: int
    columns: int
    heights: int
    taps: int  # table of (offset in x, offset in the gradient), `per` for each kh
    per: int
    gradient: int
    gradient_m: int
    tilings: int  # as in Conv


class TurnedGrad(NamedTuple):
    """What `ConvGrad` adds up, with channels in the lanes and for all blocks at once: for images of few places.

    The gradient of some outputs' weights is complete at a time, and they are updated at once.
    """

    x: int
    x_block: int
    x_row: int
    x_rows: int
    x_columns: int
    inputs: int  # channels
    channels: int  # table: where channels are, from the first one's on
    wide: int  # channels, rounded up to whole vectors
    turned: int  # scratch: [block][row][column][lane][channel]
    turned_block: int
    turned_row: int  # between two lanes
    places: int  # table 0, turned_row, 2 * turned_row ...
    delta: int
    delta_block: int
    delta_m: int
    weight: int
    taps: int  # table of (offset in delta, offset in turned)
    groups: int  # table of (first, count) of these, one for each tap
    group_count: int
    sums: int  # scratch: [tap][output][channel]
    sums_tap: int  # between two taps
    gradient: int  # scratch: [output][channel][tap]
    m_chunks: int
    m_count: int
    w_chunks: int  # table of (first vector of channels, vectors)
    w_count: int


class Linear(NamedTuple):
    """y[m] = start + sum over k of weight[m * weight_m + k * weight_k] * x[k], all blocks at once."""

    x: int
    x_block: int
    inputs: int
    weight: int
    weight_m: int
    weight_k: int
    bias: int  # -1: none
    y: int
    y_block: int
    accumulate: int
    relu: int
    k_block: int
    columns: int  # blocks in a tile
    zeros: int  # table (0, 0)
    m_chunks: int
    m_count: int


class LinearGrad(NamedTuple):
    """The gradient by a linear layer's weight and bias, finished (see `finish`) while it is in the cache."""

    x: int
    x_block: int
    d: int
    d_block: int
    inputs: int
    outputs: int
    weight: int
    bias: int  # -1: none
    turned: int  # scratch: x with samples as rows
    turned_row: int
    places: int  # table of lanes offsets 0, L, 2L ...; then 0, turned_row, 2 * turned_row ...
    gradient: int  # scratch: `tiles` tiles, or the bias
    columns: int  # vectors of inputs in a tile
    tiles: int
    m_chunks: int
    m_count: int
    blocks: int  # table of (d, turned) offsets of each block


class Elementwise(NamedTuple):
    """y = f(x) or d *= f'(...) on `rows` stretches of `size` floats; what f is, the operation says."""

    x: int
    x_block: int
    y: int
    y_block: int
    rows: int
    size: int
    x_row: int
    y_row: int


class Dropout(NamedTuple):
    """y = x * 2^32 / keep where a random 32-bit number is below `keep`, else 0; the same for the gradient."""

    x: int
    x_block: int
    y: int
    y_block: int
    rows: int
    columns: int
    x_row: int
    y_row: int
    shared: int  # this many rows share one decision per sample (Dropout2d: a channel's); 0: each value has its own
    layer: int
    keep: int


class Norm(NamedTuple):
    """Batch normalisation of each channel: y = weight * (x - mean) / sqrt(variance + epsilon) + bias.

    On the way back, y is the gradient by the output and becomes the gradient by the input.
    """

    x: int
    x_block: int
    x_row: int
    y: int
    y_block: int
    y_row: int
    channels: int
    rows: int
    columns: int
    weight: int  # -1: one
    bias: int  # -1: zero
    mean: int  # running, in the row
    variance: int
    statistics: int  # of this batch: means, then 1 / sqrt(variance + epsilon), then a scratch of two vectors
    momentum: int  # bits of a float64
    epsilon: int


class Rescale(NamedTuple):
    """y = factor * x + constant, with fixed numbers for each channel."""

    x: int
    x_block: int
    x_row: int
    y: int
    y_block: int
    y_row: int
    channels: int
    rows: int
    columns: int
    numbers: int  # table of (factor, constant), bits of float64


class Window(NamedTuple):
    """The maximum or mean of windows of x; on the way back, x and y are the gradients."""

    x: int
    x_block: int
    x_m: int
    x_row: int
    x_rows: int
    x_columns: int
    y: int
    y_block: int
    y_m: int
    y_row: int
    channels: int
    rows: int
    columns: int
    height: int
    width: int
    stride_down: int
    stride_across: int
    pad_down: int
    pad_across: int
    marks: int  # which place of the window won
    accumulate: int


class Finish(NamedTuple):
    """A gradient that is complete: update these parameters, or keep it until the whole is known."""

    gradient: int
    parameter: int
    size: int


class Loss(NamedTuple):
    """The loss of the batch, and its gradient by the output x into d."""

    x: int
    x_block: int
    d: int
    d_block: int
    features: int
    scratch: int
    places: int  # table 0, L, 2L ...


class LinearSquares(NamedTuple):
    """squares[lane] += |x|^2 |d|^2: the squared length of each sample's gradient by a linear layer's parameters."""

    x: int
    x_block: int
    d: int
    d_block: int
    inputs: int
    outputs: int
    bias: int  # 1: there is one
    squares: int  # one vector for each block
    scratch: int  # four vectors


class ConvSquares(NamedTuple):
    """squares[lane] += the squared length of each sample's gradient by a convolution's parameters."""

    x: int
    x_block: int
    x_m: int
    x_row: int
    x_rows: int
    channels: int
    stride_down: int
    stride_across: int
    pad: int
    delta: int
    delta_block: int
    delta_m: int
    delta_row: int
    outputs: int
    rows: int
    columns: int
    height: int
    width: int
    bias: int  # 1: there is one
    squares: int
    scratch: int


class Lengths(NamedTuple):
    """out[sample] = sqrt(squares[lane]) times the size of the batch, by whose mean the loss was made smaller."""

    squares: int


class Weigh(NamedTuple):
    """d[i][lane] *= out[sample]: every sample's loss counts with a weight of its own."""

    d: int
    d_block: int
    features: int
