"""Where a number comes from: the configuration, the sources, the commit and the processor of the run that made it."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import covey
import experiments
import lanes
from covey.errors import UserError
from covey.files import write_atomically

FILE = "origin.json"  # in the folder of a run that an experiment made


def fingerprint(text: str | bytes) -> str:
    """16 hex digits of SHA-256."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]


def origin(settings: str) -> dict[str, Any]:
    """What identifies a run of these settings here and now; whoever has the same gets the same bits."""
    return {
        "config": fingerprint(settings),
        "sources": sources(),
        "commit": commit(),
        "instructions": instructions(),
    }


@functools.cache
def sources() -> str:
    """The fingerprint of all source files that make a number: covey's, those of lanes, and these."""
    whole = hashlib.sha256()
    for package in (covey, lanes, experiments):
        here = Path(str(package.__file__)).parent
        for path in sorted(here.rglob("*.py")):
            whole.update(f"{here.name}/{path.relative_to(here)}\0".encode() + path.read_bytes())
    return whole.hexdigest()[:16]


@functools.cache
def commit() -> str:
    """The commit of the sources, with + where something was changed; empty outside a checkout."""
    name = _git("rev-parse", "--short", "HEAD")
    return name + ("+" if name and changed() else "")


@functools.cache
def changed() -> tuple[str, ...]:
    """Sources and experiments that differ from the commit; stored results do not count, they are what is made."""
    lines = (_git("status", "--porcelain", "-uall", "--", ":/src", ":/experiments") or "").splitlines()
    return tuple(line[3:] for line in lines if "/results/" not in line)


def _git(*words: str) -> str:
    try:
        command = ["git", "-C", str(Path(covey.__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def require_clean(what: str) -> None:
    """Refuses to continue with sources that no commit has: nobody could make the number again."""
    if changed():
        raise UserError(
            f"{what} is not stored from changed sources ({', '.join(changed()[:3])}); commit them first, or try it out "
            "in a folder of your own, where nothing is stored under experiments/"
        )


@functools.cache
def instructions() -> str:
    """The vector instructions of the fast trainer and of PyTorch; results may differ in the last bits between them."""
    from covey.training.bench.lanes_bench import instruction_set

    return f"lanes {instruction_set()}, torch {torch.backends.cpu.get_cpu_capability().lower()}"


@functools.cache
def processor() -> str:
    """The processor's name as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def write_origin(folder: Path, found: Mapping[str, Any]) -> None:
    write_atomically(folder / FILE, json.dumps(dict(found), indent=1))


def read_origin(folder: Path) -> dict[str, Any]:
    """The origin of the run in a folder; empty if it has none."""
    try:
        found: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}


def same_sources(found: Mapping[str, Any]) -> bool:
    """Whether a run was made by exactly these sources."""
    return found.get("sources") == sources()


def storable(found: Mapping[str, Any]) -> bool:
    """Whether a run's numbers may be stored: its commit is known and was clean, or there is no checkout at all."""
    return bool(found) and not str(found.get("commit", "+")).endswith("+")
