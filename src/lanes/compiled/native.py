"""What Numba code may call that Numba does not know: plain pointers, and the vector kernels."""

from typing import Any

from numba import types
from numba.extending import intrinsic

from lanes.compiled import vector
from lanes.compiled.emit import F32, FLOATS, I64, INTS, MARKS

int64: Any = types.int64
f32: Any = types.float32
f64: Any = types.float64
u32: Any = types.uint32
pointer_to: Any = types.CPointer
floats, marks, ints, doubles = (
    pointer_to(t) for t in (types.float32, types.uint8, types.int64, types.float64)
)
_TYPES = {FLOATS: floats, MARKS: marks, INTS: ints, I64: int64, F32: f32}


def _external(name: str) -> Any:
    arguments = (_TYPES[argument] for argument in vector.SIGNATURES[name])
    return types.ExternalFunction(name, types.void(*arguments))


contract = _external("lanes_contract")
correlate = _external("lanes_correlate")
transpose = _external("lanes_transpose")
pool = _external("lanes_pool")
unpool = _external("lanes_unpool")
tanh = _external("lanes_tanh")
sigmoid = _external("lanes_sigmoid")
softmax = _external("lanes_softmax")
moments = _external("lanes_moments")
products = _external("lanes_products")
mix = _external("lanes_mix")
scale = _external("lanes_scale")
transform = _external("lanes_transform")
multiply = _external("lanes_multiply")


def _at(_context: Any, pointer: Any, _offset: Any) -> Any:
    """pointer + offset, in elements."""

    def generate(_context: Any, b: Any, _signature: Any, values: Any) -> Any:
        return b.gep(values[0], [values[1]])

    return pointer(pointer, int64), generate


def _fields(_context: Any, kind: Any, _row: Any) -> Any:
    """The named tuple `kind` from the int64 values at `row`."""
    names = kind.instance_class._fields
    named: Any = types.NamedUniTuple
    result = named(int64, len(names), kind.instance_class)

    def generate(context: Any, b: Any, _signature: Any, values: Any) -> Any:
        numbers = [b.load(b.gep(values[1], [I64(i)])) for i in range(len(names))]
        return context.make_tuple(b, result, numbers)

    return result(kind, ints), generate


at: Any = intrinsic(_at)
fields: Any = intrinsic(_fields)
