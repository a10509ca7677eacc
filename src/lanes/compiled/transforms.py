"""The transforms of Winograd's convolutions as vector kernels: with a sample in each lane, sums of whole vectors.

F(o x o, k x k) makes o x o outputs from a tile of s x s inputs, s = o + k - 1, with s^2 multiplications in place of
o^2 k^2: y = A' [(G w G') * (B' x B)] A, and the gradient by the weights is G' [(A d A') * (B' x B)] G
(Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016). The polynomials behind it are taken at
the points 0, 1, -1, 2, -2 and infinity (a tile of 4: without 2 and -2; of 8: with 1/2 and -1/2).
"""

from collections.abc import Sequence

from llvmlite import ir

from lanes.compiled.emit import F32, FLOATS, I64, Emitter, Value, define, numbers

Matrix = tuple[tuple[float, ...], ...]

FORMS = ((4, 5), (2, 5), (4, 3), (2, 3))  # outputs and taps along one side
POINTS = {
    8: (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5),
    6: (0.0, 1.0, -1.0, 2.0, -2.0),
    4: (0.0, 1.0, -1.0),
}
SCALES = {
    8: (1.0, -2 / 9, -2 / 9, 1 / 90, 1 / 90, 32 / 45, 32 / 45),
    6: (1 / 4, -1 / 6, -1 / 6, 1 / 24, 1 / 24),
    4: (1.0, 0.5, 0.5),
}
INPUT: dict[int, Matrix] = {
    8: (
        (1, 0, -5.25, 0, 5.25, 0, -1, 0),
        (0, 1, 1, -4.25, -4.25, 1, 1, 0),
        (0, -1, 1, 4.25, -4.25, -1, 1, 0),
        (0, 0.5, 0.25, -2.5, -1.25, 2, 1, 0),
        (0, -0.5, 0.25, 2.5, -1.25, -2, 1, 0),
        (0, 2, 4, -2.5, -5, 0.5, 1, 0),
        (0, -2, 4, 2.5, -5, -0.5, 1, 0),
        (0, -1, 0, 5.25, 0, -5.25, 0, 1),
    ),
    6: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    4: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
}


def flipped(matrix: Matrix) -> Matrix:
    """Rows become columns."""
    return tuple(zip(*matrix, strict=True))


def weights_matrix(outputs: int, taps: int) -> Matrix:
    """G: the kernel's polynomial at every point, scaled; at infinity, its last coefficient."""
    size = outputs + taps - 1
    rows = [
        tuple(scale * point**k for k in range(taps))
        for point, scale in zip(POINTS[size], SCALES[size], strict=True)
    ]
    return (*rows, (*[0.0] * (taps - 1), 1.0))


def output_matrix(outputs: int, taps: int) -> Matrix:
    """A': powers of the points, one row per output."""
    size = outputs + taps - 1
    return tuple(
        (*(point**o for point in POINTS[size]), 1.0 if o == outputs - 1 else 0.0) for o in range(outputs)
    )


USES = ("input", "output", "delta", "weights", "gradient")  # of a form's transforms


def matrix_of(form: tuple[int, int], use: str) -> Matrix:
    """T of y = T x T', for a use of a form."""
    if use == "input":
        return INPUT[sum(form) - 1]
    if use in ("output", "delta"):
        found = output_matrix(*form)
        return found if use == "output" else flipped(found)
    found = weights_matrix(*form)
    return found if use == "weights" else flipped(found)


def which(form: tuple[int, int], use: str) -> int:
    """The number by which a program names a transform."""
    return FORMS.index(form) * len(USES) + USES.index(use)


TRANSFORM = [FLOATS, I64, I64, I64, FLOATS, I64, I64, I64, I64, FLOATS, F32, I64]


def transform(e: Emitter, matrix: Matrix, finish: bool, *arguments: Value) -> None:
    """y = T x T' for `count` squares of vectors; with `finish`, plus each one's bias, and nothing stays below `floor`.

    Element (i, j) of a square is at i * row + j * column, the next square `next` further.
    """
    x, x_row, x_column, x_next, y, y_row, y_column, y_next, count, bias, floor, _ = arguments
    size = len(matrix[0])
    px, py, pb = e.variable(x), e.variable(y), e.variable(bias)
    with e.repeat(count):
        half: list[list[Value]] = []  # by column of x
        for j in range(size):
            column = [e.load(e.at(e.at(px.now, x_row, i), x_column, j)) for i in range(size)]
            half.append(multiplied(e, matrix, column))
        for i in range(len(matrix)):
            for j, value in enumerate(multiplied(e, matrix, [half[k][i] for k in range(size)])):
                if finish:
                    value = e.at_least(e.add(value, e.spread(e.number(pb.now))), e.spread(floor))
                e.store(value, e.at(e.at(py.now, y_row, i), y_column, j))
        px.now, py.now = e.at(px.now, x_next), e.at(py.now, y_next)
        if finish:
            pb.now = e.at(pb.now, 1)


def twins(matrix: Matrix) -> dict[int, int]:
    """Rows that differ in signs alone (of a point and its negative): the first one's number to the second one's."""
    found: dict[int, int] = {}
    for i, row in enumerate(matrix):
        for j in range(i + 1, len(matrix)):
            if [abs(a) for a in row] == [abs(a) for a in matrix[j]] and j not in found.values():
                found[i] = j
                break
    return found


def multiplied(e: Emitter, matrix: Matrix, vectors: Sequence[Value]) -> list[Value]:
    """The matrix times the vectors; what twins of rows or columns have in common is added up once."""
    if len(matrix) < len(matrix[0]):
        return _by_columns(e, matrix, list(vectors))
    result: list[Value] = [None] * len(matrix)
    pairs = twins(matrix)
    for i, row in enumerate(matrix):
        if result[i] is not None:
            continue
        if i not in pairs:
            result[i] = combined(e, row, vectors)
            continue
        other = matrix[pairs[i]]
        same = [a if a == b else 0 for a, b in zip(row, other, strict=True)]
        opposite = [a if a != b else 0 for a, b in zip(row, other, strict=True)]
        even, odd = combined(e, same, vectors), combined(e, opposite, vectors)
        result[i], result[pairs[i]] = e.add(even, odd), e.subtract(even, odd)
    return result


def _by_columns(e: Emitter, matrix: Matrix, vectors: list[Value]) -> list[Value]:
    """Of twins among the columns, rows take the sum or the difference of their vectors."""
    pairs = twins(flipped(matrix))
    sums = {i: e.add(vectors[i], vectors[j]) for i, j in pairs.items()}
    differences = {i: e.subtract(vectors[i], vectors[j]) for i, j in pairs.items()}
    result = []
    for row in matrix:
        factors, terms = [], []
        for i, factor in enumerate(row):
            if i in pairs.values():
                continue
            alike = i not in pairs or row[pairs[i]] == factor
            factors.append(factor)
            terms.append(vectors[i] if i not in pairs else (sums if alike else differences)[i])
        result.append(combined(e, factors, terms))
    return result


def combined(e: Emitter, factors: Sequence[float], vectors: Sequence[Value]) -> Value:
    """The sum of factor times vector; what is 1, -1 or 0 is no multiplication."""
    total = None
    for factor, vector in sorted(
        ((f, v) for f, v in zip(factors, vectors, strict=True) if f), key=lambda pair: -pair[0]
    ):
        if total is None:
            total = vector if factor == 1 else e.multiply(numbers(factor), vector)
        elif factor in (1, -1):
            total = (e.add if factor == 1 else e.subtract)(total, vector)
        else:
            total = e.add(total, e.multiply(numbers(factor), vector))
    return total


def define_transforms(module: ir.Module, name: str) -> None:
    """A function for every use of every form, and `name`, which calls the one that its last argument names."""
    kind = ir.FunctionType(ir.VoidType(), TRANSFORM).as_pointer()
    variants = []
    for form in FORMS:
        for use in USES:
            matrix, finish = matrix_of(form, use), use == "output"

            def body(e: Emitter, *values: Value, matrix: Matrix = matrix, finish: bool = finish) -> None:
                transform(e, matrix, finish, *values)

            variants.append(define(module, f"{name}_{which(form, use)}", TRANSFORM, body))
    type_ = ir.ArrayType(kind, len(variants))
    table = ir.GlobalVariable(module, type_, f"{name}_variants")
    table.global_constant = True
    table.initializer = ir.Constant(type_, variants)

    def choose(e: Emitter, *values: Value) -> None:
        e.b.call(e.b.load(e.b.gep(table, [I64(0), values[-1]])), values, tail=True)

    define(module, name, TRANSFORM, choose)
