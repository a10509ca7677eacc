"""Threads that take turns at Python: one holds the turn while it works, and lends it while compiled code runs.

Python lets one thread run at a time, and every operation on an array gives another one the chance. Where operations are
short, two threads then wake each other hundreds of times per round, which costs more than either gains.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TURN = threading.Lock()
_OWN = threading.local()


@contextmanager
def in_turn() -> Iterator[None]:
    """Holds the turn; not from within itself."""
    with _TURN:
        _OWN.turn = True
        try:
            yield
        finally:
            _OWN.turn = False


@contextmanager
def aside() -> Iterator[None]:
    """Lets others have the turn, if this thread holds it; for what needs no Python for a while."""
    if not getattr(_OWN, "turn", False):
        yield
        return
    _OWN.turn = False
    _TURN.release()
    try:
        yield
    finally:
        _TURN.acquire()
        _OWN.turn = True
