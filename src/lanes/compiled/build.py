"""Compiles one part of the machine into an object file: `python -m lanes.compiled.build PART FILE`.

Runs in a process of its own: the environment can restrict the target, no training process pays for Numba, and
all parts are compiled at the same time.
"""

import ctypes
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from lanes.compiled.isa import host
from lanes.compiled.library import VECTOR_PARTS


def target_machine() -> Any:
    isa = host()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=isa.cpu or llvm.get_host_cpu_name(),
        features=isa.features or llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="default",
    )


def vector_part(part: str, machine: Any) -> Any:
    """Vector kernels, written in LLVM's own language."""
    from lanes.compiled.vector import vector_module

    module = vector_module(part)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return llvm.parse_assembly(str(module))


def machine_part(part: str) -> Any:
    """All the rest, translated by Numba; it exports one function."""
    from lanes.compiled import parts
    from lanes.compiled.apart import CALLS, ENTRIES, PART
    from lanes.compiled.machine import each
    from lanes.compiled.vector import SIGNATURES

    nowhere = ctypes.create_string_buffer(8)
    for symbol in (*SIGNATURES, *ENTRIES.values()):  # Numba links at once, although nobody calls it here
        llvm.add_symbol(symbol, ctypes.addressof(nowhere))
    function: Any = each if part == "machine" else getattr(parts, part)
    function.compile(CALLS if part == "machine" else PART)
    (compiled,) = function.overloads.values()
    name = compiled.fndesc.llvm_func_name
    module = llvm.parse_assembly(str(compiled.library._final_module).replace(name, ENTRIES[part]))
    for symbol in [*module.functions, *module.global_variables]:
        if not symbol.is_declaration and symbol.name != ENTRIES[part]:
            symbol.linkage = "internal"
    return module


def optimised(part: str, machine: Any) -> Any:
    """One part of the machine as LLVM optimises it for a target."""
    module = vector_part(part, machine) if part in VECTOR_PARTS else machine_part(part)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return module


def build(part: str, target: Path) -> None:
    machine = target_machine()
    target.write_bytes(machine.emit_object(optimised(part, machine)))


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2]))
