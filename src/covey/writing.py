"""Files that are whole or not there, and one sentence where the disk refuses.

Every change of a run folder is made here, so that a test can let the process die at each of them (`failing_at`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from covey.errors import RunError

FailPoint = Callable[[str, Path], None]  # is told what is about to happen to which file
_points: list[FailPoint] = []


@contextlib.contextmanager
def failing_at(point: FailPoint) -> Iterator[None]:
    """For tests: `point` is called before every change of a file meanwhile, and may raise or end the process."""
    _points.append(point)
    try:
        yield
    finally:
        _points.remove(point)


def _about_to(what: str, path: Path) -> None:
    for point in _points:
        point(what, path)


def _write(file: BinaryIO, data: bytes, path: Path) -> None:
    """Writes; under test in two halves, between which the process may die."""
    half = len(data) // 2 if _points else 0
    file.write(data[:half])
    if _points:
        file.flush()
        _about_to("write the second half of", path)
    file.write(data[half:])


def write_atomically(path: Path, content: bytes | str, *, mode: int = 0o666) -> None:
    """Writes a file so that after a crash there is either the old one or the new one, whole.

    `mode` are its permissions from its first byte on, less those that the process's umask takes away.
    """
    temporary = path.with_name(path.name + ".tmp")
    data = content.encode() if isinstance(content, str) else content
    _about_to("begin", path)
    try:
        temporary.unlink(missing_ok=True)  # one that is left of a crash may have other permissions
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            _write(file, data, path)
            file.flush()
            os.fsync(file.fileno())
        _about_to("put in place", path)
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


def append(path: Path, data: bytes) -> None:
    """Adds to the end of a file, or begins one; after a crash a part of it may be there."""
    _about_to("append to", path)
    with open(path, "ab") as file:
        _write(file, data, path)


def cut(path: Path, length: int) -> None:
    """Cuts a file off after so many bytes."""
    _about_to("cut", path)
    with open(path, "r+b") as file:
        file.truncate(length)


def remove(path: Path) -> None:
    """Takes a file away, if it is there."""
    _about_to("remove", path)
    path.unlink(missing_ok=True)


def strict_json(value: Any, *, indent: int | None = None, spaced: bool = False) -> str:
    """The value as JSON that every reader takes: null for what is not finite, text for what JSON has no word for.

    `spaced`: with a space after every comma, as Python's own writer has it.
    """
    separators = None if spaced or indent is not None else (",", ":")
    encoder = json.JSONEncoder(allow_nan=False, indent=indent, separators=separators, default=str)
    try:
        return encoder.encode(value)
    except ValueError:
        return encoder.encode(finite(value))


def finite(value: Any) -> Any:
    """The same plain value with None in place of every number in it that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    return [finite(part) for part in value] if isinstance(value, list | tuple) else value


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
