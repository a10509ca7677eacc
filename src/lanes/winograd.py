"""Writes the operations of Winograd convolutions: fewer multiplications, for layers that have enough channels."""

from dataclasses import dataclass

from lanes.compiled import fast_instructions as fast
from lanes.compiled import instructions as do
from lanes.compiled.isa import Isa
from lanes.compiled.operations import Operation
from lanes.compiled.tiles import best, shapes, split
from lanes.convolve import Target
from lanes.graph import Conv, Shape
from lanes.stages import Stage
from lanes.workspace import ALIGN, Tensor, Writer

LEAST_CHANNELS = (
    16  # on both sides: with fewer, the transforms cost more than the multiplications that they save
)
LEAST_GAIN = 1.5  # times fewer multiplications
# of transformed weights: larger ones do not stay in a cache from block to block, so that all blocks are done at once
LARGE_BYTES = 2 << 20
# of transformed inputs and of products worked on at a time: both fit into a usual second-level cache
STRIP_BYTES, PART_BYTES = 256 * 1024, 128 * 1024
MOST_TILES = 4  # in a strip
NO_POOLING = do.Pooling(*[0] * len(do.Pooling._fields))


def odd_lines(size: int) -> int:
    """This many floats, rounded up to an odd number of cache lines: places 2^k apart would share few of them."""
    return ALIGN * (-(-size // ALIGN) | 1)


@dataclass(frozen=True, kw_only=True)
class Form:
    """F(step x step, kernel x kernel) for an output of these sizes."""

    step: int
    kernel: int
    rows: int
    columns: int

    @property
    def size(self) -> int:
        return self.step + self.kernel - 1

    @property
    def places(self) -> int:
        return self.size**2

    def which(self, use: str) -> int:
        from lanes.compiled.transforms import which  # needs the compiler, which is an extra

        return which((self.step, self.kernel), use)

    @property
    def tiles(self) -> int:
        """The number of tiles that cover the output; the last of a row or a column may reach over its border."""
        return -(-self.rows // self.step) * -(-self.columns // self.step)


def form_of(kind: Conv, channels: int, outputs: int, target: Shape) -> Form | None:
    """The form with the fewest multiplications for a convolution onto images of the target's size; none: none fits."""
    from lanes.compiled.transforms import FORMS  # needs the compiler, which is an extra

    kernel = kind.kernel[0]
    fits = kind.kernel[1] == kernel and kind.stride == (1, 1) and max(kind.padding) < kernel
    if not fits or min(channels, outputs) < LEAST_CHANNELS:
        return None
    forms = [
        Form(step=step, kernel=kernel, rows=target.rows, columns=target.columns)
        for step, taps in FORMS
        if taps == kernel
    ]
    best_form = min(forms, key=lambda form: (form.places * form.tiles, form.places), default=None)
    direct = target.rows * target.columns * kernel**2
    return best_form if best_form and LEAST_GAIN * best_form.places * best_form.tiles <= direct else None


def form_of_stage(stage: Stage) -> Form | None:
    """The form of a layer's way forward, and of its weights' gradient."""
    if not isinstance(stage.kind, Conv):
        return None
    whole = not stage.pooled or (stage.inner.rows % 2 == 0 and stage.inner.columns % 2 == 0)
    return form_of(stage.kind, stage.input.channels, stage.inner.channels, stage.inner) if whole else None


def form_back(stage: Stage) -> Form | None:
    """The form of the gradient by a layer's input."""
    if not isinstance(stage.kind, Conv) or form_of_stage(stage) is None:
        return None
    return form_of(stage.kind, stage.inner.channels, stage.input.channels, stage.input)


def is_large(stage: Stage) -> bool:
    """Whether a layer with such a form is done on all blocks of a batch at once; see `whole`."""
    form = form_of_stage(stage)
    size = stage.input.channels * stage.inner.channels
    return form is not None and 4 * form.places * size > LARGE_BYTES


def transformed_weights(
    w: Writer, kind: Conv, form: Form, outputs: int, inputs: int, *, flipped: bool
) -> int:
    """Where the layer's transformed weights will be; the operation comes once per batch."""
    fields = weights_fields(w, kind, form, outputs, inputs, flipped=flipped)
    w.do(Operation.FAST_WEIGHTS, fields, by_block=False)
    return fields.u


def weights_fields(
    w: Writer, kind: Conv, form: Form, outputs: int, inputs: int, *, flipped: bool, part: int | None = None
) -> fast.FastWeights:
    """How weights are transformed; `part`: that many outputs (flipped: inputs) at a time, none takes all."""
    along, across = (inputs, outputs) if flipped else (outputs, inputs)
    place = odd_lines((along if part is None else part) * across)
    return fast.FastWeights(
        weight=kind.weight,
        outputs=outputs,
        inputs=inputs,
        kernel=form.kernel,
        size=form.size,
        flipped=int(flipped),
        apart=w.place(form.kernel**2 * place),
        u=w.place(form.places * place),
        u_place=place,
        into=form.which("weights"),
    )


def convolve_fast(
    w: Writer,
    form: Form,
    x: Tensor,
    pad: tuple[int, int],
    u: int,
    y: Target,
    *,
    bias: int | None = None,
    relu: bool = False,
    accumulate: bool = False,
    pooling: do.Pooling | None = None,
) -> None:
    """y = the convolution of x; with `pooling`, y is not used: maxima of 2 x 2 go where it says."""
    strip = strips_of(w, form, x, pad)
    rows = _rows(w.isa, y.channels, strip.tiles)
    parts = parts_of(y.channels, rows, PART_BYTES // (4 * form.places * strip.tiles * w.isa.lanes))
    fields = conv_fields(
        *(w, form, strip, y, (rows, strip.tiles), parts, bias),
        weights=(u, odd_lines(y.channels * x.shape.channels)),
        relu=relu,
        accumulate=accumulate,
        pooled=pooling is not None,
    )
    w.do(Operation.FAST_CONV, strip, fields, pooling or NO_POOLING, by_block=True)


def parts_of(channels: int, rows: int, room: int) -> list[tuple[int, int]]:
    """(first, count) of channels: as many as there is room for, in whole register tiles of that many rows."""
    most = max(1, room // rows) * rows
    return [(m, min(most, channels - m)) for m in range(0, channels, most)]


def conv_fields(
    w: Writer,
    form: Form,
    strip: fast.Strip,
    y: Target,
    tile: tuple[int, int],
    parts: list[tuple[int, int]],
    bias: int | None,
    *,
    weights: tuple[int, int],
    relu: bool,
    accumulate: bool,
    pooled: bool,
) -> fast.Fast:
    """What a convolution has beside its strips; `weights`: the transformed ones, and how far their places are apart."""
    channels, lanes = parts[0][1], w.isa.lanes
    products_place = odd_lines(channels * strip.tiles * lanes)
    return fast.Fast(
        u=weights[0],
        u_place=weights[1],
        bias=-1 if bias is None else bias,
        zeros=w.place(channels),
        y=y.place,
        y_block=y.block,
        y_m=y.channel,
        y_row=y.row,
        y_rows=form.rows,
        y_columns=form.columns,
        out=form.which("output"),
        products=w.place(form.places * products_place),
        products_place=products_place,
        tile=w.place(channels * form.step**2 * lanes),
        parts=w.table(parts),
        part_count=len(parts),
        rows=tile[0],
        columns=tile[1],
        relu=int(relu),
        accumulate=int(accumulate),
        pooled=int(pooled),
    )


def _rows(isa: Isa, channels: int, tiles: int) -> int:
    """Channels of the register tile with that many columns and the fewest cycles (two multiply-adds or loads)."""

    def cycles(rows: int) -> float:
        return -(-channels // rows) * max(rows * tiles / 2, (rows + tiles) / 2, 4)

    return min((rows for rows, columns in shapes(isa) if columns == tiles), key=cycles)


def strips_of(w: Writer, form: Form, x: Tensor, pad: tuple[int, int]) -> fast.Strip:
    """The tiles of x, some at a time."""
    lanes, channels = w.isa.lanes, x.shape.channels
    most = max(1, min(MOST_TILES, STRIP_BYTES // (4 * form.places * channels * lanes)))
    strips = split(form.tiles, most)
    return strip_fields(w, form, x, pad, strips, max(length for _, length in strips))


def strip_fields(
    w: Writer, form: Form, x: Tensor, pad: tuple[int, int], strips: list[tuple[int, int]], tiles: int
) -> fast.Strip:
    """How tiles of x are transformed, strip after strip; there is room for that many tiles."""
    lanes, channels = w.isa.lanes, x.shape.channels
    v_place = odd_lines(channels * tiles * lanes)
    return fast.Strip(
        x=x.column(-pad[1]),
        x_block=x.block,
        x_m=x.plane,
        x_row=x.row,
        x_rows=x.shape.rows,
        x_wide=x.shape.columns + x.margin + pad[1],
        pad=pad[0],
        channels=channels,
        step=form.step,
        size=form.size,
        made=form.size,
        across=-(-form.columns // form.step),
        per=form.tiles,
        strips=w.table(strips),
        strip_count=len(strips),
        tiles=tiles,
        padded=w.place(form.places * lanes),
        v=w.place(form.places * v_place),
        v_place=v_place,
        into=form.which("input"),
    )


def weight_gradient_fast(w: Writer, form: Form, kind: Conv, delta: Tensor, x: Tensor) -> fast.FastSum:
    """Adds up the transformed gradient block after block; what it returns, done once per batch, turns it back."""
    lanes, channels, outputs = w.isa.lanes, x.shape.channels, delta.shape.channels
    strip = strips_of(w, form, x, kind.padding)
    wide = -(-outputs // lanes) * lanes
    tile = best(w.isa, channels, wide // lanes)
    w_chunks = split(wide // lanes, tile[1])
    turned_place, d_place = odd_lines(lanes * wide), odd_lines(strip.tiles * lanes * wide)
    sums_place = odd_lines(channels * wide)
    sums = w.place(form.places * sums_place)
    grad = fast.FastGrad(
        delta=delta.inside,
        delta_block=delta.block,
        delta_row=delta.row,
        delta_rows=form.rows,
        delta_columns=form.columns,
        wide=wide,
        outputs=w.table([min(m, outputs - 1) * delta.plane for m in range(wide)]),
        places=w.table([k * wide for k in range(lanes)]),
        turned=w.place(form.step**2 * turned_place),
        turned_place=turned_place,
        d=w.place(form.places * d_place),
        d_place=d_place,
        sums=sums,
        sums_place=sums_place,
        rows=tile[0],
        w_chunks=w.table(w_chunks),
        w_count=len(w_chunks),
        into=form.which("delta"),
    )
    w.do(Operation.FAST_GRAD, strip, grad, by_block=True)
    return fast.FastSum(
        sums=sums,
        sums_place=sums_place,
        channels=channels,
        outputs=outputs,
        wide=wide,
        kernel=form.kernel,
        size=form.size,
        apart=w.place(form.kernel**2 * sums_place),
        gradient=-1,
        back=form.which("gradient"),
    )
