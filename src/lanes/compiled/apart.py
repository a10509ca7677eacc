"""Calls from one object file into another, by name and in Numba's calling convention."""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lanes.compiled.emit import I64
from lanes.compiled.native import doubles, f32, floats, int64, ints, marks
from lanes.compiled.operations import PARTS
from lanes.compiled.state import Machine
from lanes.compiled.update import Update

ENTRIES = {name: f"lanes_{name}" for name in PARTS}  # the function that each part exports

_named: Any = types.NamedTuple
_update = _named([*[floats] * 6, *[int64] * 4, *[f32] * 7], Update)
_machine = _named(
    [floats, marks, ints, ints, floats, _update, floats, ints, floats, floats, ints, *[int64] * 3], Machine
)
PART: Any = (_machine, int64, ints, int64, int64)
RUN: Any = (
    *(ints, ints, int64, ints, floats, marks, ints),
    *(floats, floats, floats, floats, floats, floats, floats),
    *(floats, ints, floats, floats, ints, ints, int64, doubles),
    *(int64, int64, int64, int64, int64),
)
ARGUMENTS = len(RUN)
CALLS: Any = (ints, int64)


def _arguments(_context: Any, _row: Any) -> Any:
    """The arguments of `run` from as many numbers at `row`."""
    all_of: Any = types.Tuple
    result = all_of(RUN)

    def generate(context: Any, b: Any, _signature: Any, values: Any) -> Any:
        numbers = [b.load(b.gep(values[0], [I64(i)])) for i in range(ARGUMENTS)]
        found = [
            b.inttoptr(number, context.get_value_type(kind)) if isinstance(kind, types.CPointer) else number
            for kind, number in zip(RUN, numbers, strict=True)
        ]
        return context.make_tuple(b, result, found)

    return result(ints), generate


arguments: Any = intrinsic(_arguments)


def _entry(name: str) -> Any:
    def call(_context: Any, _s: Any, _operation: Any, _c: Any, _b0: Any, _b1: Any) -> Any:
        none: Any = types.none
        insert: Any = cgutils.get_or_insert_function

        def generate(context: Any, b: Any, signature: Any, values: Any) -> Any:
            kind = context.call_conv.get_function_type(none, signature.args)
            function = insert(b.module, kind, ENTRIES[name])
            context.call_conv.call_function(b, function, none, signature.args, values)
            return context.get_dummy_value()

        return none(*PART), generate

    made: Any = intrinsic(call)
    return made


images, windows, norms, winograd = (_entry(name) for name in PARTS[1:])
