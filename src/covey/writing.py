"""Files that are whole or not there, and one sentence where the disk refuses."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from covey.errors import RunError


def write_atomically(path: Path, content: bytes | str) -> None:
    """Writes a file so that after a crash there is either the old one or the new one, whole."""
    temporary = path.with_name(path.name + ".tmp")
    data = content.encode() if isinstance(content, str) else content
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()  # on a full disk, half a file only makes it fuller
        raise
    place = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(place)  # the new name, too, must survive a power cut
    finally:
        os.close(place)


def strict_json(value: Any) -> str:
    """The value as JSON that every reader takes: null for what is not finite, text for what JSON has no word for."""
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


@contextlib.contextmanager
def storing(folder: Path) -> Iterator[None]:
    """What the disk refuses meanwhile ends the run in one sentence; what was saved before stays as it is."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {reason(error)}; {what_is_left(folder)}") from error


def reason(error: OSError) -> str:
    """Why, in the system's words, and of which file."""
    why = error.strerror or str(error)
    return f"{why} ({error.filename})" if error.filename else why


def what_is_left(folder: Path) -> str:
    """What the user can do now."""
    with contextlib.suppress(OSError):
        if (folder / "config.toml").exists():
            return f"what was saved before is whole: go on with --resume {folder}"
    return "nothing can be resumed from it"
