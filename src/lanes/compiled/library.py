"""The compiled training machine: built once on a computer, kept in the user's cache folder."""

import ctypes
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs

from lanes.compiled.isa import Isa, LanesError

ENTRY = "lanes_run"
CPU_SECONDS, LONGER_HALF = 22, 14  # of compiling, both halves and the longer one, on a Zen 4 core
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
    return {half: cache_folder() / f"{name}-{half}.o" for half in ("vector", "machine")}


def ensure_built(isa: Isa, progress: Progress | None = None) -> list[Path]:
    """The object files, compiled by processes of their own if they are not there yet."""
    targets = object_files(isa)
    if not all(path.exists() for path in targets.values()):
        if progress:
            progress(
                f"compiling the lanes kernels for {isa.name}, once on this machine: {time_to_compile(len(targets))}"
            )
        started = time.monotonic()
        with alone(), tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            missing = {half: path for half, path in targets.items() if not path.exists()}
            drafts = {half: Path(folder) / path.name for half, path in missing.items()}
            _compile(isa, drafts)
            for half, draft in drafts.items():
                draft.replace(missing[half])
        if progress:
            progress(f"compiled the lanes kernels in {time.monotonic() - started:.0f} s")
    return list(targets.values())


def time_to_compile(halves: int) -> str:
    """How long it will take, with the other work that the machine has at the moment."""
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    idle = LONGER_HALF if cores >= halves else CPU_SECONDS
    seconds = idle * max(1.0, (load + halves) / max(cores, halves))
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
        subprocess.Popen([*command, half, draft], env=environment, stderr=subprocess.PIPE, text=True)
        for half, draft in drafts.items()
    ]
    errors = [worker.communicate()[1] for worker in workers]
    for worker, error in zip(workers, errors, strict=True):
        if worker.returncode:
            reason = (error.strip().splitlines() or ["no message"])[-1]
            raise LanesError(f"the lanes kernels could not be compiled for {isa.name}: {reason}")


@functools.cache
def load(isa: Isa) -> Any:
    """The machine's entry point as a ctypes function, which releases the interpreter lock while it runs."""
    import llvmlite.binding as llvm

    builder = llvm.JITLibraryBuilder().export_symbol(ENTRY).add_current_process()
    for path in ensure_built(isa):
        builder.add_object_img(path.read_bytes())
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(jit=True)
    # JITLink lays everything out in one block; the older linker fails where code and data end up over 2 GB apart.
    compiler = llvm.create_lljit_compiler(target, use_jit_link=True)
    library = builder.link(compiler, "lanes")
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
