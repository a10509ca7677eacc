"""Writes LLVM IR on vectors of one float per lane."""

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from lanes.compiled.isa import host

LANES = host().lanes
I8, I32, I64, F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
VECTOR, BYTES = ir.VectorType(F32, LANES), ir.VectorType(I8, LANES)
FLOATS, MARKS, INTS = F32.as_pointer(), I8.as_pointer(), I64.as_pointer()
NOTHING = ir.Constant(VECTOR, None)  # zero in all lanes
RELAXED = ("contract", "reassoc", "nsz")  # multiply-adds and sums in any order, but NaN stays NaN

Value = Any  # an ir.Value: llvmlite has no types


def numbers(number: float) -> Value:
    """A float in all lanes."""
    return ir.Constant(VECTOR, [struct.unpack("f", struct.pack("f", number))[0]] * LANES)


def marks(number: int) -> Value:
    """A byte in all lanes."""
    return ir.Constant(BYTES, [number] * LANES)


class Variable:
    """A value that changes in a loop (LLVM turns the stack slot into a register)."""

    def __init__(self, b: ir.IRBuilder, value: Value) -> None:
        self._b = b
        with b.goto_entry_block():
            self._slot = b.alloca(value.type)
        b.store(value, self._slot)

    @property
    def now(self) -> Value:
        return self._b.load(self._slot)

    @now.setter
    def now(self, value: Value) -> None:
        self._b.store(value, self._slot)


class Emitter:
    """Adds instructions to one function.

    Where only the first half of every vector's lanes hold a sample, `lanes`, two such vectors are worked on as one.
    """

    def __init__(self, b: ir.IRBuilder, lanes: int = LANES) -> None:
        self.b = b
        self.lanes = lanes

    def variable(self, value: Value) -> Variable:
        return Variable(self.b, value)

    def at(self, pointer: Value, offset: Value | int, times: int = 1) -> Value:
        """pointer + offset * times, in elements."""
        if isinstance(offset, int):
            return self.b.gep(pointer, [I64(offset * times)])
        return self.b.gep(pointer, [self.b.mul(offset, I64(times))])

    def load(self, pointer: Value, type_: ir.VectorType = VECTOR) -> Value:
        value = self.b.load(self.b.bitcast(pointer, type_.as_pointer()))
        value.align = 1 if type_ == BYTES else 4
        return value

    def store(self, value: Value, pointer: Value) -> None:
        instruction = self.b.store(value, self.b.bitcast(pointer, value.type.as_pointer()))
        instruction.align = 1 if value.type == BYTES else 4

    def groups(self, count: int) -> list[range]:
        """Which of `count` vectors are worked on as one."""
        together = LANES // self.lanes
        return [range(first, min(first + together, count)) for first in range(0, count, together)]

    def load_together(self, pointers: Sequence[Value]) -> Value:
        """The first lanes of one or two vectors side by side in one; zero behind them."""
        if self.lanes == LANES:
            return self.load(pointers[0])
        part = ir.VectorType(F32, self.lanes)
        first, *more = (self.load(pointer, part) for pointer in pointers)
        return self.shuffle(first, more[0] if more else ir.Constant(part, None), range(LANES))

    def load_repeated(self, pointer: Value) -> Value:
        """The first lanes of a vector, repeated."""
        part = self.load(pointer, ir.VectorType(F32, self.lanes))
        return self.shuffle(part, part, [*range(self.lanes)] * (LANES // self.lanes))

    def lanes_at(self, place: int) -> list[int]:
        """The first lanes of the vector at this place of those that are side by side in one."""
        return [*range(place * self.lanes, (place + 1) * self.lanes)]

    def store_apart(self, value: Value, pointers: Sequence[Value]) -> None:
        """What is side by side in one vector, each into the first lanes of its own; zero into the others."""
        for place, pointer in enumerate(pointers):
            lanes = self.lanes_at(place) + [LANES] * (LANES - self.lanes)
            self.store(self.shuffle(value, NOTHING, lanes), pointer)

    def number(self, pointer: Value, index: int = 0) -> Value:
        """The scalar pointer[index]."""
        return self.b.load(self.at(pointer, index))

    def spread(self, scalar: Value) -> Value:
        """A scalar in all lanes."""
        empty = ir.Constant(VECTOR, ir.Undefined)
        return self.shuffle(self.b.insert_element(empty, scalar, I32(0)), empty, [0] * LANES)

    def shuffle(self, first: Value, second: Value, lanes: Sequence[int]) -> Value:
        """The named lanes of two vectors; the second's begin where the first's end."""
        return self.b.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))

    def add(self, first: Value, second: Value) -> Value:
        return self.b.fadd(first, second, flags=RELAXED)

    def multiply_add(self, first: Value, second: Value, total: Variable) -> None:
        total.now = self.add(total.now, self.multiply(first, second))

    def multiply(self, first: Value, second: Value) -> Value:
        return self.b.fmul(first, second, flags=RELAXED)

    def divide(self, first: Value, second: Value) -> Value:
        return self.b.fdiv(first, second, flags=("contract", "nsz"))

    def subtract(self, first: Value, second: Value) -> Value:
        return self.b.fsub(first, second, flags=RELAXED)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """By Horner's rule, the highest power first."""
        total = numbers(coefficients[0])
        for c in coefficients[1:]:
            total = self.add(self.multiply(total, x), numbers(c))
        return total

    def exp(self, x: Value) -> Value:
        """e^x = 2^n * e^r with |r| <= ln(2) / 2 and Taylor's polynomial; 0 below -87, e^88 above 88."""
        b = self.b
        whole = ir.VectorType(I32, LANES)
        low = b.fcmp_ordered("<", x, numbers(-87.0))
        x = b.select(b.fcmp_ordered(">", x, numbers(88.0)), numbers(88.0), x)
        known = b.fcmp_ordered(">=", x, numbers(-87.0))  # not for NaN, which has no nearest integer
        z = self.multiply(b.select(known, x, NOTHING), numbers(1 / math.log(2)))
        half = b.select(b.fcmp_ordered(">", z, NOTHING), numbers(0.5), numbers(-0.5))
        n = b.fptosi(b.fadd(z, half), whole)
        count = b.sitofp(n, VECTOR)
        # ln(2) in two parts, the first with few bits, so that n times it is exact
        r = b.fsub(x, b.fmul(count, numbers(0.693359375)))
        r = b.fadd(r, b.fmul(count, numbers(2.12194440e-4)))
        p = self.polynomial(r, [1 / math.factorial(k) for k in range(7, -1, -1)])
        bits = b.shl(b.add(n, ir.Constant(whole, [127] * LANES)), ir.Constant(whole, [23] * LANES))
        return b.select(low, NOTHING, self.multiply(p, b.bitcast(bits, VECTOR)))

    def sigmoid(self, x: Value) -> Value:
        one = numbers(1.0)
        return self.divide(one, self.add(one, self.exp(self.b.fsub(NOTHING, x))))

    def tanh(self, x: Value) -> Value:
        """(1 - e^-2|x|) / (1 + e^-2|x|) with the sign of x; near zero, where that cancels, Taylor's."""
        b, one = self.b, numbers(1.0)
        negative = b.fcmp_ordered("<", x, NOTHING)
        a = b.select(negative, b.fsub(NOTHING, x), x)
        e = self.exp(self.multiply(a, numbers(-2.0)))
        large = self.divide(self.subtract(one, e), self.add(one, e))
        series = [62 / 2835, -17 / 315, 2 / 15, -1 / 3, 1.0]
        small = self.multiply(a, self.polynomial(self.multiply(a, a), series))
        value = b.select(b.fcmp_ordered("<", a, numbers(0.25)), small, large)
        return b.select(negative, b.fsub(NOTHING, value), value)

    def at_least(self, value: Value, low: Value) -> Value:
        """The larger of the two; NaN if the value is."""
        return self.b.select(self.b.fcmp_ordered(">", low, value), low, value)

    @contextmanager
    def repeat(self, count: Value) -> Iterator[None]:
        """A loop that runs `count` times, not at all if it is negative."""
        b = self.b
        head, body, end = (b.append_basic_block(name) for name in ("head", "body", "end"))
        i = self.variable(I64(0))
        b.branch(head)
        b.position_at_end(head)
        b.cbranch(b.icmp_signed("<", i.now, count), body, end)
        b.position_at_end(body)
        yield
        i.now = b.add(i.now, I64(1))
        b.branch(head)
        b.position_at_end(end)

    @contextmanager
    def when(self, first: Value, number: int) -> Iterator[None]:
        """Only if first == number."""
        with self.b.if_then(self.b.icmp_signed("==", first, I64(number))):
            yield

    def sums_apart(self, values: Sequence[Value], counts: Sequence[int]) -> list[Value]:
        """The sum over the lanes of each of those `counts` vectors that are side by side in one."""
        return self.lane_sums(
            [
                self.shuffle(value, value, self.lanes_at(place))
                for value, count in zip(values, counts, strict=True)
                for place in range(count)
            ]
        )

    def lane_sums(self, vectors: Sequence[Value]) -> list[Value]:
        """The sum over the lanes of each vector: two vectors become one of half sums, until one is left."""
        if len(vectors) > self.lanes:
            return self.lane_sums(vectors[: self.lanes]) + self.lane_sums(vectors[self.lanes :])
        level = list(vectors)
        counts = [1] * len(vectors)  # how many sums a vector holds, in its first lanes
        width = self.lanes  # lanes that belong to one sum
        while width > 1:
            starts = range(0, self.lanes, width)
            pairs = [(level[i], level[min(i + 1, len(level) - 1)]) for i in range(0, len(level), 2)]
            low = [s + k for s in [*starts, *(self.lanes + s for s in starts)] for k in range(width // 2)]
            high = [lane + width // 2 for lane in low]
            level = [self.add(self.shuffle(a, b, low), self.shuffle(a, b, high)) for a, b in pairs]
            counts = [sum(counts[i : i + 2]) for i in range(0, len(counts), 2)]
            width //= 2
        return [
            self.b.extract_element(vector, I32(lane))
            for vector, count in zip(level, counts, strict=True)
            for lane in range(count)
        ]


def define(
    module: ir.Module,
    name: str,
    arguments: Sequence[ir.Type],
    body: Callable[..., None],
    lanes: int = LANES,
) -> ir.Function:
    """A function of the module, written by `body(emitter, *arguments)`; `lanes`: of the Emitter."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name=name)
    function.attributes.add("nounwind")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    start = b.append_basic_block("start")
    b.position_at_end(start)
    body(Emitter(b, lanes), *function.args)
    b.ret_void()
    b.position_at_end(function.entry_basic_block)
    b.branch(start)
    return function
