"""Files for their owner's eyes only."""

from __future__ import annotations

import os
from pathlib import Path


def write_secret(path: Path, content: bytes) -> None:
    """A file that only its owner can read, from its first byte on, and that is whole or not there."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
