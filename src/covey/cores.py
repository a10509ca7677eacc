"""How many cores and how much memory this process may use."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "COVEY_CORES"


def usable_cores() -> int:
    """As many as the system gives this process, or fewer where COVEY_CORES says so: runs side by side share them."""
    try:
        there = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        there = os.cpu_count() or 1
    told = os.environ.get(VARIABLE, "")
    return max(1, min(there, int(told))) if told.isdecimal() else there


def free_memory() -> int | None:
    """Bytes that this machine, or the container, has free; None where the system does not say."""
    found = [value for value in (_of_machine(), _of_container()) if value is not None]
    return min(found) if found else None


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError):
            return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), None)


def _of_container() -> int | None:
    group = Path("/sys/fs/cgroup")
    try:
        most, used = (
            (group / name).read_text(encoding="utf-8").strip() for name in ("memory.max", "memory.current")
        )
        return None if most == "max" else max(0, int(most) - int(used))
    except (OSError, ValueError):
        return None
