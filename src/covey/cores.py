"""How many cores this process may use."""

from __future__ import annotations

import os

VARIABLE = "COVEY_CORES"


def usable_cores() -> int:
    """As many as the system gives this process, or fewer where COVEY_CORES says so: runs side by side share them."""
    try:
        there = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        there = os.cpu_count() or 1
    told = os.environ.get(VARIABLE, "")
    return max(1, min(there, int(told))) if told.isdecimal() else there
