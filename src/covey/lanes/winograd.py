"""Writes the operations of Winograd convolutions: fewer multiplications, for layers that have enough channels."""

from dataclasses import dataclass

from covey.lanes.compiled import fast_instructions as fast
from covey.lanes.compiled import instructions as do
from covey.lanes.compiled.operations import Operation
from covey.lanes.compiled.tiles import best, split
from covey.lanes.compiled.transforms import FORMS, which
from covey.lanes.convolve import Target
from covey.lanes.graph import Conv, Shape
from covey.lanes.stages import Stage
from covey.lanes.workspace import Tensor, Writer

LEAST_CHANNELS = (
    16  # on both sides: with fewer, the transforms cost more than the multiplications that they save
)
MOST_WEIGHTS = 1 << 22  # transformed, in floats
STRIP_BYTES = 512 * 1024  # of transformed inputs worked on at a time: half of a usual second-level cache
NO_POOLING = do.Pooling(*[0] * len(do.Pooling._fields))


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
        return which((self.step, self.kernel), use)


def form_of(kind: Conv, channels: int, outputs: int, target: Shape) -> Form | None:
    """The form that suits a convolution onto images of the target's size; none where there is none."""
    kernel = kind.kernel[0]
    fits = kind.kernel[1] == kernel and kind.stride == (1, 1) and max(kind.padding) < kernel
    if not fits or min(channels, outputs) < LEAST_CHANNELS:
        return None
    for step, taps in FORMS:
        divides = target.rows % step == 0 and target.columns % step == 0
        if taps == kernel and divides and (step + taps - 1) ** 2 * channels * outputs <= MOST_WEIGHTS:
            return Form(step=step, kernel=kernel, rows=target.rows, columns=target.columns)
    return None


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


def transformed_weights(
    w: Writer, kind: Conv, form: Form, outputs: int, inputs: int, *, flipped: bool
) -> int:
    """Where the layer's transformed weights will be; the operation comes once per batch."""
    lanes = w.isa.lanes
    count = -(-outputs * inputs // lanes) * lanes
    u = w.place(form.places * count)
    fields = fast.FastWeights(
        weight=kind.weight,
        outputs=outputs,
        inputs=inputs,
        kernel=form.kernel,
        size=form.size,
        flipped=int(flipped),
        pairs=count,
        apart=w.place(form.kernel**2 * count),
        u=u,
        into=form.which("weights"),
    )
    w.do(Operation.FAST_WEIGHTS, fields, by_block=False)
    return u


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
    pooling: do.Pooling | None = None,
) -> None:
    """y = the convolution of x; with `pooling`, y is not used: maxima of 2 x 2 go where it says."""
    lanes = w.isa.lanes
    strip = _strip(w, form, x, pad)
    tile = best(w.isa, y.channels, strip.tiles)
    m_chunks, w_chunks = split(y.channels, tile[0]), split(strip.tiles, tile[1])
    row = strip.tiles * form.step * lanes
    fields = fast.Fast(
        u=u,
        bias=-1 if bias is None else bias,
        y=w.place(tile[0] * form.step * row) if pooling else y.place,
        y_block=y.block,
        y_m=form.step * row if pooling else y.channel,
        y_row=row if pooling else y.row,
        outputs=y.channels,
        out=form.which("output"),
        products=w.place(form.places * tile[0] * strip.tiles * lanes),
        most=tile[0],
        m_chunks=w.table(m_chunks),
        m_count=len(m_chunks),
        w_chunks=w.table(w_chunks),
        w_count=len(w_chunks),
        zeros=w.table([0, 0]),
        relu=int(relu),
        pooled=int(pooling is not None),
    )
    w.do(Operation.FAST_CONV, strip, fields, pooling or NO_POOLING, by_block=True)


def _strip(w: Writer, form: Form, x: Tensor, pad: tuple[int, int]) -> fast.Strip:
    lanes, channels = w.isa.lanes, x.shape.channels
    across = form.columns // form.step
    most = max(1, STRIP_BYTES // (4 * form.places * channels * lanes))
    tiles = max(n for n in range(1, across + 1) if across % n == 0 and (n <= most or n == 1))
    width = (tiles * form.step + form.kernel - 1) * lanes
    return fast.Strip(
        x=x.column(-pad[1]),
        x_block=x.block,
        x_m=x.plane,
        x_row=x.row,
        x_rows=x.shape.rows,
        pad=pad[0],
        channels=channels,
        step=form.step,
        size=form.size,
        tiles=tiles,
        parts=across // tiles,
        tile_rows=form.rows // form.step,
        width=width,
        padded=w.place(form.size * width),
        v=w.place(form.places * channels * tiles * lanes),
        into=form.which("input"),
    )


def weight_gradient_fast(w: Writer, form: Form, kind: Conv, delta: Tensor, x: Tensor) -> fast.FastSum:
    """Adds up the transformed gradient block after block; what it returns, done once per batch, turns it back."""
    lanes, channels, outputs = w.isa.lanes, x.shape.channels, delta.shape.channels
    strip = _strip(w, form, x, kind.padding)
    wide = -(-outputs // lanes) * lanes
    tile = best(w.isa, channels, wide // lanes)
    m_chunks, w_chunks = split(channels, tile[0]), split(wide // lanes, tile[1])
    sums = w.place(form.places * channels * wide)
    grad = fast.FastGrad(
        delta=delta.inside,
        delta_block=delta.block,
        delta_row=delta.row,
        wide=wide,
        outputs=w.table([min(m, outputs - 1) * delta.plane for m in range(wide)]),
        places=w.table([k * wide for k in range(lanes)]),
        turned=w.place(form.step * strip.tiles * form.step * lanes * wide),
        d=w.place(form.places * strip.tiles * lanes * wide),
        sums=sums,
        m_chunks=w.table(m_chunks),
        m_count=len(m_chunks),
        w_chunks=w.table(w_chunks),
        w_count=len(w_chunks),
        zeros=w.table([0, 0]),
        into=form.which("delta"),
    )
    w.do(Operation.FAST_GRAD, strip, grad, by_block=True)
    return fast.FastSum(
        sums=sums,
        channels=channels,
        outputs=outputs,
        wide=wide,
        kernel=form.kernel,
        size=form.size,
        apart=w.place(form.kernel**2 * channels * wide),
        gradient=-1,
        back=form.which("gradient"),
    )
