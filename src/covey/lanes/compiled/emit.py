"""Writes LLVM IR on vectors of one float a lane."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from covey.lanes.compiled.isa import host

LANES = host().lanes
I8, I32, I64, F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
VECTOR, BYTES = ir.VectorType(F32, LANES), ir.VectorType(I8, LANES)
FLOATS, MARKS, INTS = F32.as_pointer(), I8.as_pointer(), I64.as_pointer()
NOTHING = ir.Constant(VECTOR, None)  # zero in all lanes
RELAXED = ("contract", "reassoc", "nsz")  # multiply-adds and sums in any order, but NaN stays NaN

Value = Any  # an ir.Value: llvmlite has no types


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
    """Adds instructions to one function."""

    def __init__(self, b: ir.IRBuilder) -> None:
        self.b = b

    def variable(self, value: Value) -> Variable:
        return Variable(self.b, value)

    def at(self, pointer: Value, offset: Value | int, times: int = 1) -> Value:
        """pointer + offset * times, in elements."""
        if isinstance(offset, int):
            return self.b.gep(pointer, [I64(offset * times)])
        return self.b.gep(pointer, [self.b.mul(offset, I64(times))])

    def load(self, pointer: Value, type_: ir.VectorType = VECTOR) -> Value:
        value = self.b.load(self.b.bitcast(pointer, type_.as_pointer()))
        value.align = 4 if type_ is VECTOR else 1
        return value

    def store(self, value: Value, pointer: Value) -> None:
        instruction = self.b.store(value, self.b.bitcast(pointer, value.type.as_pointer()))
        instruction.align = 4 if value.type == VECTOR else 1

    def number(self, pointer: Value, index: int = 0) -> Value:
        """The scalar pointer[index]."""
        return self.b.load(self.at(pointer, index))

    def spread(self, scalar: Value) -> Value:
        """A scalar in all lanes."""
        empty = ir.Constant(VECTOR, ir.Undefined)
        return self.shuffle(self.b.insert_element(empty, scalar, I32(0)), empty, [0] * LANES)

    def shuffle(self, first: Value, second: Value, lanes: Sequence[int]) -> Value:
        """The named lanes of two vectors; the second's begin at LANES."""
        return self.b.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))

    def add(self, first: Value, second: Value) -> Value:
        return self.b.fadd(first, second, flags=RELAXED)

    def multiply_add(self, first: Value, second: Value, total: Variable) -> None:
        total.now = self.add(total.now, self.b.fmul(first, second, flags=RELAXED))

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

    def lane_sums(self, vectors: Sequence[Value]) -> list[Value]:
        """The sum over the lanes of each vector: two vectors become one of half sums, again and again."""
        if len(vectors) > LANES:
            return self.lane_sums(vectors[:LANES]) + self.lane_sums(vectors[LANES:])
        level = list(vectors)
        counts = [1] * len(vectors)  # how many sums a vector holds, in its first lanes
        width = LANES  # lanes that belong to one sum
        while width > 1:
            starts = range(0, LANES, width)
            pairs = [(level[i], level[min(i + 1, len(level) - 1)]) for i in range(0, len(level), 2)]
            low = [s + k for s in [*starts, *(LANES + s for s in starts)] for k in range(width // 2)]
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
    module: ir.Module, name: str, arguments: Sequence[ir.Type], body: Callable[..., None]
) -> ir.Function:
    """A function of the module, written by `body(emitter, *arguments)`."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name=name)
    function.attributes.add("nounwind")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    start = b.append_basic_block("start")
    b.position_at_end(start)
    body(Emitter(b), *function.args)
    b.ret_void()
    b.position_at_end(function.entry_basic_block)
    b.branch(start)
    return function
