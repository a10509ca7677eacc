"""Writes Winograd convolutions with many channels, which are done on all blocks of a batch at once."""

from lanes.compiled import fast_instructions as fast
from lanes.compiled import instructions as do
from lanes.compiled.operations import Operation
from lanes.compiled.tiles import best, split
from lanes.convolve import Target
from lanes.graph import Conv
from lanes.winograd import (
    NO_POOLING,
    Form,
    conv_fields,
    odd_lines,
    parts_of,
    strip_fields,
    weights_fields,
)
from lanes.workspace import ALIGN, Tensor, Writer

# of transformed weights and of sums that are worked on at a time: about half of a usual second-level cache
PART_BYTES = 512 * 1024


def convolve_whole(
    w: Writer,
    form: Form,
    kind: Conv,
    x: Tensor,
    pad: tuple[int, int],
    y: Target,
    *,
    flipped: bool = False,
    bias: int | None = None,
    relu: bool = False,
    accumulate: bool = False,
    pooling: do.Pooling | None = None,
) -> None:
    """y = the convolution of x; flipped: the gradient by the input of x, its delta. See `convolve_fast`."""
    strip = one_strip(w, form, x, pad)
    inputs = x.shape.channels
    tile = best(w.isa, y.channels, form.tiles * w.blocks)
    parts = parts_of(y.channels, tile[0], PART_BYTES // (4 * form.places * inputs))
    sizes = (inputs, y.channels) if flipped else (y.channels, inputs)
    weights = weights_fields(w, kind, form, *sizes, flipped=flipped, part=parts[0][1])
    fields = conv_fields(
        *(w, form, strip, y, tile, parts, bias),
        weights=(weights.u, weights.u_place),
        relu=relu,
        accumulate=accumulate,
        pooled=pooling is not None,
    )
    w.do(Operation.WHOLE_CONV, strip, fields, pooling or NO_POOLING, weights, by_block=False)


def one_strip(w: Writer, form: Form, x: Tensor, pad: tuple[int, int]) -> fast.Strip:
    """All tiles of all blocks."""
    tiles = form.tiles * w.blocks
    while tiles * w.isa.lanes // ALIGN % 2 == 0:  # channels 2^k apart would share cache lines
        tiles += 1
    return strip_fields(w, form, x, pad, [(0, form.tiles * w.blocks)], tiles)


def weight_gradient_whole(
    w: Writer, form: Form, kind: Conv, delta: Tensor, x: Tensor
) -> tuple[fast.Strip, fast.WholeGrad]:
    """The gradient of all blocks, and the update of the weights with it; done when nobody needs these any more."""
    lanes, channels, outputs = w.isa.lanes, x.shape.channels, delta.shape.channels
    strip = one_strip(w, form, delta, (0, 0))._replace(size=form.step, into=form.which("delta"))
    wide = -(-channels // lanes) * lanes
    tile = best(w.isa, outputs, wide // lanes)
    w_chunks = split(wide // lanes, tile[1])
    parts = parts_of(outputs, tile[0], PART_BYTES // (4 * form.places * wide))
    rows = parts[0][1]
    turned_place, v_place = odd_lines(lanes * wide), odd_lines(form.tiles * w.blocks * lanes * wide)
    sums_place = odd_lines(rows * wide)
    return strip, fast.WholeGrad(
        x=x.column(-kind.padding[1]),
        x_block=x.block,
        x_row=x.row,
        x_rows=x.shape.rows,
        x_wide=x.shape.columns + x.margin + kind.padding[1],
        pad=kind.padding[0],
        inputs=channels,
        channels=w.table([min(m, channels - 1) * x.plane for m in range(wide)]),
        wide=wide,
        places=w.table([k * wide for k in range(lanes)]),
        turned=w.place(form.places * turned_place),
        turned_place=turned_place,
        v=w.place(form.places * v_place),
        v_place=v_place,
        into=form.which("input"),
        sums=w.place(form.places * sums_place),
        sums_place=sums_place,
        back=form.which("gradient"),
        taps=form.kernel,
        apart=w.place(form.kernel**2 * sums_place),
        apart_tap=sums_place,
        gradient=w.place(rows * channels * form.kernel**2),
        weight=kind.weight,
        parts=w.table(parts),
        part_count=len(parts),
        rows=tile[0],
        w_chunks=w.table(w_chunks),
        w_count=len(w_chunks),
    )
