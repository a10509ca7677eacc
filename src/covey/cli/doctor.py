"""The command `covey doctor`: what is installed, what this machine can do, and the command for what is missing."""

import os
import platform
import sys
from collections.abc import Iterator

from covey.errors import RunError

# extra -> what it is for; the packages themselves are listed in the installed package's metadata
EXTRAS = {
    "fast": "small models many times faster on a processor",
    "private": "noise on sums, accounting, secure draws",
    "flower": "real sites",
    "ray": "a Ray cluster",
    "studies": "covey tune",
    "watch": "covey watch",
    "onnx": "models as ONNX files",
    "excel": "Excel files",
    "sql": "data bases",
    "huggingface": "data sets of the Hugging Face Hub",
    "mlflow": "tracking with MLflow",
    "tensorboard": "tracking with TensorBoard",
    "wandb": "tracking with Weights & Biases",
}
CheckRow = tuple[str, str]


def doctor(*, compile: bool = False) -> None:
    """Say what is installed, what this machine can do, and the command for what is missing.

    Args:
        compile: compile the kernels of the fast trainer now, once on this machine.
    """
    for title, rows in (("installed", installed()), ("machine", machine()), ("data", data())):
        print(title)
        for name, words in rows:
            print(f"  {name:<13} {words}")
    if compile:
        compiled_now()


def installed() -> Iterator[CheckRow]:
    """Versions, and which extras are there."""
    import torch

    from covey.version import __version__

    yield "covey", __version__
    yield "Python", platform.python_version()
    yield "PyTorch", torch.__version__
    wanted = packages_of_extras()
    for extra, purpose in EXTRAS.items():
        missing = [name for name in wanted.get(extra, ()) if version_of(name) is None]
        found = ", ".join(
            f"{name} {version_of(name)}" for name in wanted.get(extra, ()) if name not in missing
        )
        yield (
            extra,
            f"missing {', '.join(missing)} ({purpose}): pip install 'covey[{extra}]'"
            if missing
            else f"{found} ({purpose})",
        )


def packages_of_extras() -> dict[str, list[str]]:
    """The packages that each extra of the installed covey asks for."""
    from importlib import metadata

    found: dict[str, list[str]] = {}
    for line in metadata.requires("covey") or ():
        requirement, _, marker = line.partition(";")
        if "extra ==" in marker:
            extra = marker.split("extra ==")[1].strip().strip("\"'")
            name = requirement.strip()
            for end in "<>=![ ~":
                name = name.split(end)[0]
            found.setdefault(extra, []).append(name)
    return found


def version_of(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def machine() -> Iterator[CheckRow]:
    """Processor, cores, memory, GPU, and what the fast trainer can use of them."""
    import torch

    from covey.files import usable_cores

    yield "system", f"{platform.system()} {platform.machine()}"
    yield "cores", f"{usable_cores()} of {os.cpu_count()} for this process (COVEY_CORES sets fewer)"
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield "memory", f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f} GB"
    yield "GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none that PyTorch finds"
    yield "fast trainer", fast_trainer()


def fast_trainer() -> str:
    """Whether small models can be trained by lanes, with which instructions, and whether that is compiled."""
    from covey.training.bench.lanes_bench import instruction_set, is_compiled

    if version_of("numba") is None:
        return "not here: pip install 'covey[fast]'"
    there = (
        "compiled"
        if is_compiled()
        else "not compiled yet for every model: covey doctor --compile (or at first use)"
    )
    return f"{instruction_set()}, {there}"


def data() -> Iterator[CheckRow]:
    """Where the data sets' folders lie, and which of them are there."""
    from covey.data.sources import SOURCES
    from covey.files import data_folder

    found = [
        name for name, source in SOURCES.items() if source.place().is_dir() and any(source.place().iterdir())
    ]
    missing = [name for name in SOURCES if name not in found]
    yield "folder", f"{data_folder()} (COVEY_DATA names another)"
    yield "found", ", ".join(sorted(found)) or "none; digits and others come with Python packages"
    if missing:
        yield (
            "not found",
            f"{', '.join(sorted(missing))}: covey datasets get NAME, or covey datasets NAME for where they come from",
        )


def compiled_now() -> None:
    """Compiles the fast trainer's kernels, if they are not there yet."""
    from covey.training.bench.lanes_bench import compile_kernels, is_compiled

    if version_of("numba") is None:
        raise RunError("the fast trainer needs numba: pip install 'covey[fast]'")
    compile_kernels(lambda words: print(words, file=sys.stderr))
    if not is_compiled():
        raise RunError(
            "the fast trainer's kernels could not be compiled; runs use PyTorch (engine.lanes = false)"
        )
    print("the fast trainer is compiled")
