"""The compiled training machine: built once on a computer, kept in the user's cache folder."""

import ctypes
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from covey.errors import RunError
from covey.lanes.compiled.isa import Isa

ENTRY = "covey_lanes_run"
SOURCES = Path(__file__).parent
Progress = Callable[[str], None]


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "covey"


def object_file(isa: Isa) -> Path:
    """Named after everything the machine code depends on: these sources, the compilers and the processor."""
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    for source in sorted(SOURCES.glob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    processor = f"{isa} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    for part in (metadata.version("numba"), metadata.version("llvmlite"), sys.version, processor):
        digest.update(part.encode())
    return cache_folder() / f"lanes-{isa.name}-{digest.hexdigest()[:16]}.o"


def ensure_built(isa: Isa, progress: Progress | None = None) -> Path:
    """The object file, compiled by a process of its own if it is not there yet."""
    target = object_file(isa)
    if target.exists():
        return target
    if progress:
        progress(f"compiling the lanes kernels for {isa.name} (once on this machine, about 20 s)")
    started = time.monotonic()
    environment = os.environ | {
        "NUMBA_OPT": "0",
        "NUMBA_DISABLE_INTEL_SVML": "1",
        "COVEY_LANES_ISA": isa.name,
    }
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if isa.cpu and isa.features:
        environment |= {"NUMBA_CPU_NAME": isa.cpu, "NUMBA_CPU_FEATURES": isa.features}
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        draft = Path(folder) / target.name
        command = [sys.executable, "-m", "covey.lanes.compiled.build", str(draft)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        if result.returncode or not draft.exists():
            reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
            raise RunError(f"the lanes kernels could not be compiled for {isa.name}: {reason}")
        draft.replace(target)
    if progress:
        progress(f"compiled the lanes kernels in {time.monotonic() - started:.0f} s")
    return target


@functools.cache
def load(isa: Isa) -> Any:
    """The machine's entry point as a ctypes function, which releases the interpreter lock while it runs."""
    import llvmlite.binding as llvm

    path = ensure_built(isa)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(jit=True)
    # JITLink lays everything out in one block; the older linker fails where code and data end up over 2 GB apart.
    compiler = llvm.create_lljit_compiler(target, use_jit_link=True)
    library = (
        llvm.JITLibraryBuilder()
        .add_object_img(path.read_bytes())
        .export_symbol(ENTRY)
        .add_current_process()
        .link(compiler, path.stem)
    )
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    # Numba's calling convention: where the result goes, where an exception goes, the arguments of `run`.
    arguments = (
        *(pointer, pointer),
        *(pointer, pointer, integer, pointer, pointer, pointer, pointer),
        *(pointer, pointer, pointer, pointer, pointer, pointer, pointer),
        *(pointer, pointer, pointer, pointer, pointer, pointer, integer, pointer),
        *(integer, integer, integer, integer, integer),
    )
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(library[ENTRY])
    function.keep_alive = (library, compiler)  # type: ignore[attr-defined]
    return function
