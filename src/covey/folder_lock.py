"""A folder that one process at a time may use."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from covey.errors import UserError


@contextlib.contextmanager
def folder_lock(folder: Path, taken: str | None = None) -> Iterator[None]:
    """Nobody else has the folder meanwhile: the system drops the lock even when this process is killed.

    Where another process has it, `taken` is what the user is told; without it, this one waits for its turn.
    """
    try:
        place = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{folder} cannot be opened: {error.strerror or error}") from error
    try:
        fcntl.flock(place, fcntl.LOCK_EX | (fcntl.LOCK_NB if taken else 0))
    except OSError as error:
        os.close(place)
        raise UserError(taken or f"{folder} cannot be locked: {error}") from error
    try:
        yield
    finally:
        os.close(place)
