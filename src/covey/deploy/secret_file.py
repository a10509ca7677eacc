"""Files for their owner's eyes only."""

from __future__ import annotations

from pathlib import Path

from covey.writing import write_atomically


def write_secret(path: Path, content: bytes) -> None:
    """A file that only its owner can read, from its first byte on, and that is whole or not there."""
    write_atomically(path, content, mode=0o600)
