"""The vector kernels: where the time goes, written as LLVM IR with register tiles.

Only LLVM's generic vector types are used, no intrinsics of a target: the same source becomes AVX-512, AVX2 or
NEON. What differs is the number of lanes in a vector and how many accumulators fit into the registers.
"""

from collections.abc import Callable, Sequence

from llvmlite import ir

from lanes.compiled.emit import (
    BYTES,
    F32,
    FLOATS,
    I64,
    INTS,
    LANES,
    MARKS,
    NOTHING,
    Emitter,
    Value,
    define,
    marks,
)
from lanes.compiled.isa import host
from lanes.compiled.tiles import NARROW, ROW, parts, shapes
from lanes.compiled.transforms import TRANSFORM, define_transforms

ZERO, BIAS, ACCUMULATE = 0, 1, 2  # what a contraction starts from


def contract(e: Emitter, rows: int, columns: int, *arguments: Value) -> None:
    """y[m, n] = start + sum of a[m * a_m + ta + r * a_run] * x[n * x_n + tx + r * x_run], scalar times vector.

    The sum is over `count` pairs (ta, tx) of the table `taps` and r < `run`; m and n go over one tile, which
    is done `tiles` times along n. start: zero, bias[m], or what y holds. Nothing stays below `floor` (ReLU).
    """
    a, a_m, x0, x_n, taps, count, run, a_run, x_run, y0, y_m, y_n, bias, start, floor, tiles, _ = arguments
    x, y, low = e.variable(x0), e.variable(y0), e.spread(floor)
    groups = e.groups(columns)
    totals = [[e.variable(NOTHING) for _ in groups] for _ in range(rows)]
    places = [(m, n) for m in range(rows) for n in range(len(groups))]

    def targets(m: int, n: int) -> list[Value]:
        return [e.at(e.at(y.now, y_m, m), y_n, column) for column in groups[n]]

    with e.repeat(tiles):
        for m, n in places:
            totals[m][n].now = NOTHING
        with e.when(start, BIAS):
            for m in range(rows):
                value = e.spread(e.number(bias, m))
                for total in totals[m]:
                    total.now = value
        with e.when(start, ACCUMULATE):
            for m, n in places:
                totals[m][n].now = e.load_together(targets(m, n))
        tap = e.variable(taps)
        with e.repeat(count):
            pa = e.variable(e.at(a, e.number(tap.now, 0)))
            px = e.variable(e.at(x.now, e.number(tap.now, 1)))
            with e.repeat(run):
                inputs = [e.load_together([e.at(px.now, x_n, n) for n in group]) for group in groups]
                for m in range(rows):
                    weight = e.spread(e.number(e.at(pa.now, a_m, m)))
                    for values, total in zip(inputs, totals[m], strict=True):
                        e.multiply_add(weight, values, total)
                pa.now, px.now = e.at(pa.now, a_run), e.at(px.now, x_run)
            tap.now = e.at(tap.now, 2)
        for m, n in places:
            e.store_apart(e.at_least(totals[m][n].now, low), targets(m, n))
        x.now, y.now = e.at(x.now, x_n, columns), e.at(y.now, y_n, columns)


CONTRACT = [
    *[FLOATS, I64, FLOATS, I64, INTS, I64, I64, I64, I64],
    *[FLOATS, I64, I64, FLOATS, I64, F32, I64, I64],
]


def correlate(e: Emitter, rows: int, columns: int, *arguments: Value) -> None:
    """gradient[m * gradient_m + g] += sum over places (h, w) and lanes of d[m, h, w] * x[tap + (h, w)].

    `taps` is a table of pairs (tap, g), one for each row of the tile, m goes over its columns; d and x have one sample
    per lane.
    """
    d, d_m, d_row, x, x_row, x_step, taps, height, width, gradient, gradient_m, _ = arguments
    groups = e.groups(columns)
    totals = [[e.variable(NOTHING) for _ in groups] for _ in range(rows)]
    row_d = e.variable(d)
    row_x = [e.variable(e.at(x, e.number(taps, 2 * n))) for n in range(rows)]
    with e.repeat(height):
        pd, px = e.variable(row_d.now), [e.variable(row.now) for row in row_x]
        with e.repeat(width):
            deltas = [e.load_together([e.at(pd.now, d_m, m) for m in group]) for group in groups]
            for p, line in zip(px, totals, strict=True):
                values = e.load_repeated(p.now)
                for delta, total in zip(deltas, line, strict=True):
                    e.multiply_add(delta, values, total)
            pd.now = e.at(pd.now, LANES)
            for p in px:
                p.now = e.at(p.now, x_step)
        row_d.now = e.at(row_d.now, d_row)
        for row in row_x:
            row.now = e.at(row.now, x_row)
    counts = [len(group) for group in groups] * rows
    sums = iter(e.sums_apart([total.now for line in totals for total in line], counts))
    for n in range(rows):
        for m in range(columns):
            target = e.at(e.at(gradient, gradient_m, m), e.number(taps, 2 * n + 1))
            e.b.store(e.add(e.b.load(target), next(sums)), target)


CORRELATE = [FLOATS, I64, I64, FLOATS, I64, I64, INTS, I64, I64, FLOATS, I64, I64]


def multiply(e: Emitter, rows: int, columns: int, *arguments: Value) -> None:
    """y[f, m, n] = sum over k of a[f, m, k] * x[f, k, n], f < `places`, scalar times vector, `chunks` tiles along m.

    Neighbours along k in a and along n in x and y follow one another; `more`: what y holds is added.
    """
    a, a_m, a_f, x, x_k, x_f, y, y_m, y_f, length, chunks, places, more, _ = arguments
    totals = [[e.variable(NOTHING) for _ in range(columns)] for _ in range(rows)]
    cells = [(m, n) for m in range(rows) for n in range(columns)]
    next_a, next_x, next_y = e.variable(a), e.variable(x), e.variable(y)
    with e.repeat(places):
        chunk_a, chunk_y = e.variable(next_a.now), e.variable(next_y.now)
        with e.repeat(chunks):
            for m, n in cells:
                totals[m][n].now = NOTHING
            with e.when(more, 1):
                for m, n in cells:
                    totals[m][n].now = e.load(e.at(e.at(chunk_y.now, y_m, m), n * LANES))
            pa, px = e.variable(chunk_a.now), e.variable(next_x.now)
            with e.repeat(length):
                inputs = [e.load(e.at(px.now, n * LANES)) for n in range(columns)]
                for m in range(rows):
                    weight = e.spread(e.number(e.at(pa.now, a_m, m)))
                    for n in range(columns):
                        e.multiply_add(weight, inputs[n], totals[m][n])
                pa.now, px.now = e.at(pa.now, 1), e.at(px.now, x_k)
            for m, n in cells:
                e.store(totals[m][n].now, e.at(e.at(chunk_y.now, y_m, m), n * LANES))
            chunk_a.now, chunk_y.now = e.at(chunk_a.now, a_m, rows), e.at(chunk_y.now, y_m, rows)
        next_a.now, next_x.now = e.at(next_a.now, a_f), e.at(next_x.now, x_f)
        next_y.now = e.at(next_y.now, y_f)


MULTIPLY = [FLOATS, I64, I64, FLOATS, I64, I64, FLOATS, I64, I64, I64, I64, I64, I64, I64]


def transpose(e: Emitter, source: Value, rows: Value, target: Value, places: Value) -> None:
    """target[places[j] + i] = source[rows[i] + j] for i and j below the number of lanes."""
    vectors = [e.load(e.at(source, e.number(rows, i))) for i in range(LANES)]
    distance = 1
    while distance < LANES:  # exchange the off-diagonal squares of size `distance`
        low = [LANES + j - distance if j & distance else j for j in range(LANES)]
        high = [LANES + j if j & distance else j + distance for j in range(LANES)]
        for i in (i for i in range(LANES) if not i & distance):
            first, second = vectors[i], vectors[i + distance]
            vectors[i], vectors[i + distance] = e.shuffle(first, second, low), e.shuffle(first, second, high)
        distance *= 2
    for j in range(LANES):
        e.store(vectors[j], e.at(target, e.number(places, j)))


TRANSPOSE = [FLOATS, INTS, FLOATS, INTS]
SHUT = 4  # the mark of a 2 x 2 square none of whose values passed the ReLU


def pool(e: Emitter, x: Value, x_row: Value, y: Value, won: Value, columns: Value, floor: Value) -> None:
    """The maxima of 2 x 2 vectors of two rows, and which of them won: the first of equals, as in PyTorch."""
    px, py, pw, low = e.variable(x), e.variable(y), e.variable(won), e.spread(floor)
    with e.repeat(columns):
        below = e.at(px.now, x_row)
        best, which = e.load(px.now), marks(0)
        for i, pointer in enumerate((e.at(px.now, LANES), below, e.at(below, LANES)), start=1):
            value = e.load(pointer)
            keep = e.b.fcmp_ordered(">=", best, value)
            best, which = e.b.select(keep, best, value), e.b.select(keep, which, marks(i))
        shut = e.b.fcmp_ordered(">=", low, best)
        e.store(e.b.select(shut, low, best), py.now)
        e.store(e.b.select(shut, marks(SHUT), which), pw.now)
        px.now, py.now, pw.now = e.at(px.now, 2 * LANES), e.at(py.now, LANES), e.at(pw.now, LANES)


POOL = [FLOATS, I64, FLOATS, MARKS, I64, F32]


def unpool(
    e: Emitter, d: Value, won: Value, delta: Value, delta_row: Value, columns: Value, total: Value
) -> None:
    """A row of gradients goes to where the maxima came from, zero to the others; total += what passed."""
    pd, pw, pt = e.variable(d), e.variable(won), e.variable(delta)
    passed = e.variable(e.load(total))
    with e.repeat(columns):
        value, which = e.load(pd.now), e.load(pw.now, BYTES)
        below = e.at(pt.now, delta_row)
        for i, target in enumerate((pt.now, e.at(pt.now, LANES), below, e.at(below, LANES))):
            e.store(e.b.select(e.b.icmp_unsigned("==", which, marks(i)), value, NOTHING), target)
        shut = e.b.icmp_unsigned("==", which, marks(SHUT))
        passed.now = e.add(passed.now, e.b.select(shut, NOTHING, value))
        pd.now, pw.now, pt.now = e.at(pd.now, LANES), e.at(pw.now, LANES), e.at(pt.now, 2 * LANES)
    e.store(passed.now, total)


UNPOOL = [FLOATS, MARKS, FLOATS, I64, I64, FLOATS]


def each(function: Callable[[Emitter, Value], Value]) -> Callable[..., None]:
    """y[i] = function(x[i]) for `count` vectors."""

    def body(e: Emitter, x: Value, y: Value, count: Value) -> None:
        px, py = e.variable(x), e.variable(y)
        with e.repeat(count):
            e.store(function(e, e.load(px.now)), py.now)
            px.now, py.now = e.at(px.now, LANES), e.at(py.now, LANES)

    return body


EACH = [FLOATS, FLOATS, I64]


def moments(e: Emitter, x: Value, count: Value, centre: Value, total: Value, square: Value) -> None:
    """total += x - centre and square += (x - centre)^2, lane by lane, over `count` vectors."""
    px, middle = e.variable(x), e.spread(centre)
    sums, squares = e.variable(e.load(total)), e.variable(e.load(square))
    with e.repeat(count):
        value = e.subtract(e.load(px.now), middle)
        sums.now = e.add(sums.now, value)
        e.multiply_add(value, value, squares)
        px.now = e.at(px.now, LANES)
    e.store(sums.now, total)
    e.store(squares.now, square)


MOMENTS = [FLOATS, I64, F32, FLOATS, FLOATS]


def products(
    e: Emitter, d: Value, x: Value, count: Value, centre: Value, total: Value, product: Value
) -> None:
    """total += d and product += d * (x - centre), lane by lane, over `count` vectors."""
    pd, px, middle = e.variable(d), e.variable(x), e.spread(centre)
    sums, products_ = e.variable(e.load(total)), e.variable(e.load(product))
    with e.repeat(count):
        value = e.load(pd.now)
        sums.now = e.add(sums.now, value)
        e.multiply_add(value, e.subtract(e.load(px.now), middle), products_)
        pd.now, px.now = e.at(pd.now, LANES), e.at(px.now, LANES)
    e.store(sums.now, total)
    e.store(products_.now, product)


PRODUCTS = [FLOATS, FLOATS, I64, F32, FLOATS, FLOATS]


def mix(e: Emitter, x: Value, y: Value, count: Value, a: Value, b: Value, constant: Value) -> None:
    """y = a * x + b * y + constant for `count` vectors."""
    px, py, va, vb, vc = e.variable(x), e.variable(y), e.spread(a), e.spread(b), e.spread(constant)
    with e.repeat(count):
        value = e.add(e.multiply(va, e.load(px.now)), e.add(e.multiply(vb, e.load(py.now)), vc))
        e.store(value, py.now)
        px.now, py.now = e.at(px.now, LANES), e.at(py.now, LANES)


MIX = [FLOATS, FLOATS, I64, F32, F32, F32]


def scale(e: Emitter, x: Value, y: Value, count: Value, factor: Value, constant: Value) -> None:
    """y = factor * x + constant for `count` vectors."""
    px, py, vf, vc = e.variable(x), e.variable(y), e.spread(factor), e.spread(constant)
    with e.repeat(count):
        e.store(e.add(e.multiply(vf, e.load(px.now)), vc), py.now)
        px.now, py.now = e.at(px.now, LANES), e.at(py.now, LANES)


SCALE = [FLOATS, FLOATS, I64, F32, F32]


def softmax(e: Emitter, x: Value, y: Value, count: Value, most: Value, total: Value) -> None:
    """y = e^(x - most) for `count` vectors, most their largest, and total = the sum of y, lane by lane."""
    px, largest = e.variable(x), e.variable(e.load(x))
    with e.repeat(count):
        largest.now = e.at_least(e.load(px.now), largest.now)
        px.now = e.at(px.now, LANES)
    px.now = x
    py, sums = e.variable(y), e.variable(NOTHING)
    with e.repeat(count):
        value = e.exp(e.subtract(e.load(px.now), largest.now))
        sums.now = e.add(sums.now, value)
        e.store(value, py.now)
        px.now, py.now = e.at(px.now, LANES), e.at(py.now, LANES)
    e.store(largest.now, most)
    e.store(sums.now, total)


SOFTMAX = [FLOATS, FLOATS, I64, FLOATS, FLOATS]


def define_family(
    module: ir.Module, name: str, arguments: Sequence[ir.Type], write: Callable[..., None]
) -> None:
    """A function for each tile shape, and `name`, which calls the one that its last argument names.

    With wide vectors there are others for blocks of which only the first half of the lanes hold a sample.
    """
    narrowed = parts(host()) if name in NARROWED else [1]
    type_ = ir.ArrayType(ir.FunctionType(ir.VoidType(), arguments).as_pointer(), len(narrowed) * NARROW)
    variants: list[Value] = [ir.Constant(type_.element, None)] * type_.count
    for number, together in enumerate(narrowed):
        for rows, columns in shapes(host(), together):

            def body(e: Emitter, *values: Value, rows: int = rows, columns: int = columns) -> None:
                write(e, rows, columns, *values)

            label = f"{name}_{together}_{rows}_{columns}"
            shape = number * NARROW + rows * ROW + columns
            variants[shape] = define(module, label, arguments, body, LANES // together)
    table = ir.GlobalVariable(module, type_, f"{name}_variants")
    table.global_constant = True
    table.initializer = ir.Constant(type_, variants)

    def choose(e: Emitter, *values: Value) -> None:
        e.b.call(e.b.load(e.b.gep(table, [I64(0), values[-1]])), values, tail=True)

    define(module, name, arguments, choose)


NARROWED = ("lanes_contract", "lanes_correlate")
FAMILIES = {
    "lanes_contract": (CONTRACT, contract),
    "lanes_correlate": (CORRELATE, correlate),
    "lanes_multiply": (MULTIPLY, multiply),
}
SINGLES: dict[str, tuple[list[ir.Type], Callable[..., None]]] = {
    "lanes_transpose": (TRANSPOSE, transpose),
    "lanes_pool": (POOL, pool),
    "lanes_unpool": (UNPOOL, unpool),
    "lanes_tanh": (EACH, each(Emitter.tanh)),
    "lanes_sigmoid": (EACH, each(Emitter.sigmoid)),
    "lanes_softmax": (SOFTMAX, softmax),
    "lanes_moments": (MOMENTS, moments),
    "lanes_products": (PRODUCTS, products),
    "lanes_mix": (MIX, mix),
    "lanes_scale": (SCALE, scale),
}
SIGNATURES = {
    "lanes_transform": TRANSFORM,
    **{name: arguments for name, (arguments, _) in (FAMILIES | SINGLES).items()},
}


def vector_module(part: str) -> ir.Module:
    """The module that defines the kernels of `vector`, or of `transforms`, which Winograd's method needs."""
    module = ir.Module(f"lanes_{part}")
    quick = part == "transforms"
    for name, (arguments, write) in FAMILIES.items():
        if (name == "lanes_multiply") == quick:
            define_family(module, name, arguments, write)
    if quick:
        define_transforms(module, "lanes_transform")
    else:
        for name, (arguments, body) in SINGLES.items():
            define(module, name, arguments, body)
    return module
