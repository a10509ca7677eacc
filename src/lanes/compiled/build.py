"""Compiles one half of the machine into an object file: `python -m lanes.compiled.build HALF FILE`.

Runs in a process of its own: the environment can restrict the target, no training process pays for Numba, and
both halves are compiled at the same time.
"""

import ctypes
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from lanes.compiled.isa import host
from lanes.compiled.library import ENTRY


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


def vector_half(machine: Any) -> Any:
    """The vector kernels, written in LLVM's own language."""
    from lanes.compiled.vector import vector_module

    module = vector_module()
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return llvm.parse_assembly(str(module))


def machine_half(_machine: Any) -> Any:
    """All the rest, translated by Numba."""
    from lanes.compiled.machine import SIGNATURE, run
    from lanes.compiled.vector import SIGNATURES

    nowhere = ctypes.create_string_buffer(8)
    for symbol in SIGNATURES:  # Numba links what it compiled at once, although nobody calls it here
        llvm.add_symbol(symbol, ctypes.addressof(nowhere))
    run.compile(SIGNATURE)  # type: ignore[attr-defined]
    (compiled,) = run.overloads.values()  # type: ignore[attr-defined]
    name = compiled.fndesc.llvm_func_name
    module = llvm.parse_assembly(str(compiled.library._final_module).replace(name, ENTRY))
    for symbol in [*module.functions, *module.global_variables]:
        if not symbol.is_declaration and symbol.name != ENTRY:
            symbol.linkage = "internal"
    return module


HALVES = {"vector": vector_half, "machine": machine_half}


def optimised(half: str, machine: Any) -> Any:
    """One half of the machine as LLVM optimises it for a target."""
    module = HALVES[half](machine)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return module


def build(half: str, target: Path) -> None:
    machine = target_machine()
    target.write_bytes(machine.emit_object(optimised(half, machine)))


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2]))
