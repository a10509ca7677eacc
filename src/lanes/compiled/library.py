"""The compiled training machine: built once on a computer, kept in the user's cache folder."""

import ctypes
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs

from lanes.compiled.isa import Isa, LanesError
from lanes.compiled.operations import PARTS, PER_PART

VECTOR_PARTS = ("vector", "transforms")  # the second for Winograd's method
ENTRY = "lanes_machine"
# CPU seconds to compile each part on a Zen 4 core
SECONDS = {
    "vector": 4.5,
    "machine": 4.1,
    "images": 1.6,
    "windows": 1.6,
    "norms": 1.6,
    "winograd": 3.7,
    "transforms": 2.1,
}
EVERY = frozenset(SECONDS)
SOURCES = Path(__file__).parent
Progress = Callable[[str], None]


def cache_folder() -> Path:
    """Where compiled kernels and timings are kept: lanes among the user's caches."""
    return platformdirs.user_cache_path("lanes")


def object_files(isa: Isa) -> dict[str, Path]:
    """Named after everything the machine code depends on: these sources, the compilers and the processor."""
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    for source in sorted(SOURCES.glob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    processor = f"{isa} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    for part in (metadata.version("numba"), metadata.version("llvmlite"), sys.version, processor):
        digest.update(part.encode())
    name = f"lanes-{isa.name}-{digest.hexdigest()[:16]}"
    return {part: cache_folder() / f"{name}-{part}.o" for part in SECONDS}


def parts_of(operations: Iterable[int]) -> frozenset[str]:
    """The parts that programs with these operations need."""
    found = {"vector", "machine", *(PARTS[operation // PER_PART] for operation in operations)}
    return frozenset(found | ({"transforms"} if "winograd" in found else set()))


def ensure_built(
    isa: Isa, progress: Progress | None = None, parts: frozenset[str] = EVERY
) -> dict[str, Path]:
    """The object files of these parts, compiled by processes of their own if they are not there yet."""
    targets = {part: path for part, path in object_files(isa).items() if part in parts}
    missing = [part for part, path in targets.items() if not path.exists()]
    if missing:
        if progress:
            progress(
                f"compiling the lanes kernels for {isa.name}, once on this machine: {time_to_compile(missing)}"
            )
        started = time.monotonic()
        with alone(), tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            drafts = {part: Path(folder) / path.name for part, path in targets.items() if not path.exists()}
            _compile(isa, drafts)
            for part, draft in drafts.items():
                draft.replace(targets[part])
        if progress:
            progress(f"compiled the lanes kernels in {time.monotonic() - started:.0f} s")
    return targets


def time_to_compile(parts: Sequence[str]) -> str:
    """How long it will take by the clock, with the other work that the machine has at the moment."""
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    each = [SECONDS[part] for part in parts]
    idle = max(max(each), sum(each) / cores)
    seconds = idle * max(1.0, (load + len(parts)) / max(cores, len(parts)))
    return f"about {seconds:.0f} s" + (f", as it is busy (load {load:.0f})" if seconds > 1.5 * idle else "")


@contextmanager
def alone() -> Iterator[None]:
    """Of several processes that want to compile, one does; the others wait for what it made."""
    import fcntl

    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "lanes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(isa: Isa, drafts: dict[str, Path]) -> None:
    """All at the same time; Numba leaves optimising to LLVM's last pass over the whole."""
    environment = os.environ | {
        "LANES_ISA": isa.name,
        "NUMBA_OPT": "0",
        "NUMBA_DISABLE_INTEL_SVML": "1",
    }
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if isa.cpu and isa.features:
        environment |= {"NUMBA_CPU_NAME": isa.cpu, "NUMBA_CPU_FEATURES": isa.features}
    command = [sys.executable, "-m", "lanes.compiled.build"]
    workers = [
        subprocess.Popen([*command, part, draft], env=environment, stderr=subprocess.PIPE, text=True)
        for part, draft in drafts.items()
    ]
    errors = [worker.communicate()[1] for worker in workers]
    for worker, error in zip(workers, errors, strict=True):
        if worker.returncode:
            reason = (error.strip().splitlines() or ["no message"])[-1]
            raise LanesError(f"the lanes kernels could not be compiled for {isa.name}: {reason}")


@functools.cache
def load(isa: Isa, parts: frozenset[str] = EVERY) -> Any:
    """The machine's entry point as a ctypes function, which releases the interpreter lock while it runs.

    With these parts alone: a program that needs another one would end the process.
    """
    import llvmlite.binding as llvm

    builder = llvm.JITLibraryBuilder().export_symbol(ENTRY).add_current_process()
    nowhere = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
    for part in set(PARTS) - parts:
        builder.import_symbol(f"lanes_{part}", nowhere)
    for path in ensure_built(isa, parts=parts).values():
        builder.add_object_img(path.read_bytes())
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(jit=True)
    # JITLink lays everything out in one block; the older linker fails where code and data end up over 2 GB apart.
    compiler = llvm.create_lljit_compiler(target, use_jit_link=True)
    library = builder.link(compiler, "lanes")
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    # Numba's calling convention: where the result goes, where an exception goes, the arguments of `each`.
    arguments = (pointer, pointer, pointer, integer)
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(library[ENTRY])
    function.keep_alive = (library, compiler)  # type: ignore[attr-defined]
    return function
