"""Writes the operations of convolutions, forward, backward and transposed."""

from collections.abc import Sequence
from dataclasses import dataclass

from lanes.compiled import instructions as do
from lanes.compiled.operations import Operation
from lanes.compiled.tiles import Reach, best, cover, parts, split
from lanes.geometry import Comb
from lanes.graph import Conv, Deconv
from lanes.workspace import Tensor, Writer

EVERYWHERE = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the rows of a convolution's output go."""

    place: int
    block: int
    channel: int
    row: int
    step: int  # between two columns
    channels: int
    rows: int
    columns: int

    @classmethod
    def of(cls, tensor: Tensor, rows: int | None = None, columns: int | None = None) -> "Target":
        return cls(
            place=tensor.inside,
            block=tensor.block,
            channel=tensor.plane,
            row=tensor.row,
            step=tensor.lanes,
            channels=tensor.shape.channels,
            rows=tensor.shape.rows if rows is None else rows,
            columns=tensor.shape.columns if columns is None else columns,
        )


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """The part of a kernel that is used: taps (kh, kw) are at first + kh * row + kw * column in the weights."""

    first: int
    heights: int
    widths: int
    row: int
    column: int
    output: int  # between two output channels
    input: int  # between two input channels


def convolve(
    w: Writer,
    kind: Conv | Deconv,
    x: Tensor,
    y: Target,
    *,
    bias: int | None = None,
    relu: bool = False,
    accumulate: bool = False,
) -> do.Conv:
    """y[m, h, v] = sum of weight[m, c, kh, kw] * x[c, h * stride - padding + kh, v * stride - padding + kw]."""
    (kh, kw), channels = kind.kernel, x.shape.channels
    kernel = Kernel(
        first=kind.weight, heights=kh, widths=kw, row=kw, column=1, output=channels * kh * kw, input=kh * kw
    )
    return _conv(
        w, kernel, x, y, kind.stride, kind.padding, x.shape.rows, x.shape.columns, bias, relu, accumulate
    )


def spread(
    w: Writer,
    kind: Conv | Deconv,
    x: Tensor,
    y: Tensor,
    *,
    rows: int | None = None,
    columns: int | None = None,
    bias: int | None = None,
    relu: bool = False,
    accumulate: bool = False,
) -> None:
    """y[m, h, v] = sum of weight[c, m, kh, kw] * x[c, (h + padding - kh) / stride, ...]: a convolution backwards.

    With a stride, outputs of one remainder are a convolution with every stride-th tap, one operation each.
    `rows` and `columns` of x are used, the rest is zero.
    """
    (kh, kw), channels = kind.kernel, y.shape.channels
    (sh, sw), (ph, pw) = kind.stride, kind.padding
    for down in Comb(kernel=kh, stride=sh, padding=ph).teeth(y.shape.rows):
        for across in Comb(kernel=kw, stride=sw, padding=pw).teeth(y.shape.columns):
            last = (down.first + (down.taps - 1) * sh) * kw + across.first + (across.taps - 1) * sw
            kernel = Kernel(
                first=kind.weight + (last if down.taps and across.taps else 0),
                heights=down.taps if across.taps else 0,
                widths=across.taps,
                row=-sh * kw,
                column=-sw,
                output=kh * kw,
                input=channels * kh * kw,
            )
            target = Target(
                place=y.inside + down.offset * y.row + across.offset * y.lanes,
                block=y.block,
                channel=y.plane,
                row=sh * y.row,
                step=sw * y.lanes,
                channels=channels,
                rows=down.count,
                columns=across.count,
            )
            size = x.shape.rows if rows is None else rows, x.shape.columns if columns is None else columns
            pads = (down.pad, across.pad)
            conv = _conv(w, kernel, x, target, (1, 1), pads, *size, bias, relu, accumulate)
            w.do(Operation.CONV, conv, by_block=True)


def _conv(
    w: Writer,
    kernel: Kernel,
    x: Tensor,
    y: Target,
    stride: tuple[int, int],
    pad: tuple[int, int],
    x_rows: int,
    x_columns: int,
    bias: int | None,
    relu: bool,
    accumulate: bool,
) -> do.Conv:
    heights = [(h * kernel.row, h * x.row) for h in range(kernel.heights)]
    if kernel.widths == 1:  # a run over the channels is longer than one over the columns of the kernel
        pairs, per = heights, 1
        reach = Reach(taps=x.shape.channels, stride=stride[1], pad=0, width=EVERYWHERE)
        w_run, x_run = kernel.input, x.plane
    else:
        pairs = [(a + c * kernel.input, b + c * x.plane) for a, b in heights for c in range(x.shape.channels)]
        per = x.shape.channels
        reach = Reach(taps=kernel.widths, stride=stride[1], pad=pad[1], width=x_columns)
        w_run, x_run = kernel.column, w.isa.lanes
    tilings = []
    for together in parts(w.isa):
        height, spans = cover(w.isa, y.channels, y.columns, reach, max(1, len(pairs)), together)
        chunks = [(s.start, s.columns, s.tiles, s.skip, s.run) for s in spans]
        tilings.append(_tiling(w, split(y.channels, height), chunks))
    return do.Conv(
        x=x.column(-pad[1]),
        x_block=x.block,
        x_row=x.row,
        x_step=stride[1] * w.isa.lanes,
        x_rows=x_rows,
        stride=stride[0],
        pad=pad[0],
        weight=kernel.first,
        weight_m=kernel.output,
        bias=-1 if bias is None else bias,
        taps=w.table(pairs),
        heights=kernel.heights,
        per=per,
        w_run=w_run,
        x_run=x_run,
        y=y.place,
        y_block=y.block,
        y_m=y.channel,
        y_row=y.row,
        y_step=y.step,
        y_rows=y.rows,
        accumulate=int(accumulate),
        relu=int(relu),
        tilings=w.table(tilings),
    )


def _tiling(w: Writer, m_chunks: Sequence[tuple[int, ...]], chunks: Sequence[tuple[int, ...]]) -> do.Tiling:
    return do.Tiling(
        m_chunks=w.table(m_chunks), m_count=len(m_chunks), chunks=w.table(chunks), tiles=len(chunks)
    )


def weight_gradient(
    w: Writer, kind: Conv | Deconv, delta: Tensor, x: Tensor, gradient: int, *, rows: int, columns: int
) -> None:
    """gradient[m, c, kh, kw] += sum of delta[m, h, v] * x[c, h * stride - padding + kh, ...] over h, v and lanes."""
    (kh, kw), channels, outputs = kind.kernel, x.shape.channels, delta.shape.channels
    area = kh * kw
    taps = [
        (v * x.lanes + c * x.plane, c * area + h * kw + v)
        for h in range(kh)
        for c in range(channels)
        for v in range(kw)
    ]
    tilings = []
    for together in parts(w.isa):
        tile = best(w.isa, channels * kw, outputs, together)
        tilings.append(_tiling(w, split(outputs, tile[1], together), split(channels * kw, tile[0])))
    w.do(
        Operation.CONV_GRAD,
        do.ConvGrad(
            x=x.column(-kind.padding[1]),
            x_block=x.block,
            x_row=x.row,
            x_step=kind.stride[1] * x.lanes,
            x_rows=x.shape.rows,
            stride=kind.stride[0],
            pad=kind.padding[0],
            **delta.by_channel("delta"),
            rows=rows,
            columns=columns,
            heights=kh,
            taps=w.table(taps),
            per=channels * kw,
            gradient=gradient,
            gradient_m=channels * area,
            tilings=w.table(tilings),
        ),
        by_block=True,
    )
