"""Files for their owner's eyes only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from covey.files import write_atomically


@contextlib.contextmanager
def for_their_owner() -> Iterator[None]:
    """What this process, and those that it starts, write meanwhile can be read by its user only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def write_secret(path: Path, content: bytes) -> None:
    """A file that only its owner can read, from its first byte on, and that is whole or not there."""
    write_atomically(path, content, mode=0o600)
