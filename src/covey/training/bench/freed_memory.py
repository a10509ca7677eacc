"""What the C library does with memory that is freed: kept for the next step of training, given back by a server."""

import contextlib
import ctypes
import functools
import sys

TRIM, MAPPED = -1, -3  # the numbers of M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in malloc.h
KEPT = 256 << 20


@functools.cache
def keep_freed_memory() -> None:
    """Has the C library keep what is freed: a step frees and asks for the same megabytes again and again.

    Otherwise they go back to the system and come back page by page, which took up to a tenth of the time of ResNet-18.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(MAPPED, 32 << 20)  # the most that it takes; larger blocks are mapped one by one
        mallopt(TRIM, KEPT)


def give_back_memory() -> None:
    """What this thread has freed goes back to the system, which the C library would keep for ever.

    `malloc_trim` returns what is free between things in use, but of a thread's own heap not the end; that end goes
    when the thread frees more than 64 KiB and the threshold allows it.
    """
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        c = ctypes.CDLL(None)
        c.mallopt(TRIM, 0)
        c.malloc_trim(0)
        bytearray(96 << 10)  # freed at once
        c.mallopt(TRIM, KEPT)
