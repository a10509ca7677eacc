"""Compiles the training machine into an object file: `python -m covey.lanes.compiled.build FILE`.

Runs in a process of its own: the environment can restrict the target, and no training process pays for Numba.
"""

import ctypes
import sys
from pathlib import Path


def build(target: Path) -> None:
    """Numba compiles the machine, LLVM the vector kernels that it calls; both go to the file."""

    import llvmlite.binding as llvm

    from covey.lanes.compiled.isa import host
    from covey.lanes.compiled.library import ENTRY
    from covey.lanes.compiled.machine import SIGNATURE, run
    from covey.lanes.compiled.vector import SIGNATURES, vector_module

    isa = host()
    nowhere = ctypes.create_string_buffer(8)
    for symbol in SIGNATURES:  # Numba links what it compiled at once, although nobody calls it here
        llvm.add_symbol(symbol, ctypes.addressof(nowhere))
    run.compile(SIGNATURE)  # type: ignore[attr-defined]
    (compiled,) = run.overloads.values()  # type: ignore[attr-defined]
    name = compiled.fndesc.llvm_func_name
    module = llvm.parse_assembly(str(compiled.library._final_module).replace(name, ENTRY))
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=isa.cpu or llvm.get_host_cpu_name(),
        features=isa.features or llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="default",
    )
    vector = vector_module()
    vector.triple = module.triple
    vector.data_layout = str(machine.target_data)
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, tuning)
    kernels = llvm.parse_assembly(str(vector))
    module.link_in(kernels)
    for symbol in [*module.functions, *module.global_variables]:
        if not symbol.is_declaration and symbol.name != ENTRY:
            symbol.linkage = "internal"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
    builder.getModulePassManager().run(module, builder)
    target.write_bytes(machine.emit_object(module))


if __name__ == "__main__":
    build(Path(sys.argv[1]))
