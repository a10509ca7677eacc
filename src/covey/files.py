"""Files that a crash cannot leave half-written, folders that one process holds, and this machine's resources."""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import platformdirs

from covey.errors import RunError, UserError, user_error

if TYPE_CHECKING:
    import pyarrow as pa

MOST = 2**30  # bytes of a file that is read whole


def open_regular(path: Path) -> BinaryIO:
    """The file, open for reading; an OSError where it is a pipe or a device, for which one would wait without end."""
    place = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(place).st_mode):
        os.close(place)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(place, "rb")


def read_whole(path: Path, most: int = MOST) -> bytes:
    """All of a regular file; an OSError where it has more bytes than `most`."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
        return file.read()


def arrows_own(pieces: Iterable[bytes]) -> pa.BufferReader:
    """The pieces of a file in memory of Arrow's own: never give Arrow a file or bytes of Python's.

    Its threads may outlive a program's last line, and one that lets go of something of Python's by then ends the
    process with an abort, after all was done (apache/arrow 34314).
    """
    import pyarrow as pa

    content = pa.BufferOutputStream()
    for piece in pieces:
        content.write(piece)
    return pa.BufferReader(content.getvalue())


def read_json(path: Path) -> Any:
    """What a JSON file holds, with None for NaN and infinities; one sentence where it cannot be read.

    A file that is not there is a FileNotFoundError: mostly it only has not been written yet.
    """
    try:
        return json.loads(read_whole(path), parse_constant=lambda _: None)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path} is damaged: it cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: it cannot be read as JSON") from error


FailPoint = Callable[[str, Path], None]  # is told what is about to happen to which file
_points: list[FailPoint] = []


@contextlib.contextmanager
def failing_at(point: FailPoint) -> Iterator[None]:
    """For tests: in this block `point` is called before every change of a file, and may raise or end the process."""
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


@contextlib.contextmanager
def for_their_owner() -> Iterator[None]:
    """Files that this process and its children write in this block can be read by its user only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def owners_folder(folder: Path) -> None:
    """Makes the folder, where there is none, and shuts it to everybody but its owner, whatever its files allow."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):  # it belongs to somebody else, who decides
        folder.chmod(0o700)


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


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file, for a library that writes to one; it is put in place of `path` when it is whole, or goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as part:
        try:
            yield part
            part.close()
            os.chmod(part.name, 0o644)  # a temporary file is its owner's alone
            os.replace(part.name, path)
        except BaseException:
            os.unlink(part.name)
            raise


def append(path: Path, data: bytes) -> None:
    """Adds to the end of a file, or begins one; after a crash a part of it may be there."""
    _about_to("append to", path)
    with open(path, "ab") as file:
        _write(file, data, path)


def cut(path: Path, length: int) -> None:
    """Cuts a file off after that many bytes."""
    _about_to("cut", path)
    with open(path, "r+b") as file:
        file.truncate(length)


def newest(folder: Path, pattern: str) -> list[Path]:
    """The files of that pattern, the last written first."""
    return sorted(folder.glob(pattern), key=lambda file: -file.stat().st_mtime_ns)


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
    """The same value as plain ones, with None in place of every number in it that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping) or is_dataclass(value):
        parts = value if isinstance(value, Mapping) else vars(value)
        return {key: finite(part) for key, part in parts.items()}
    return [finite(part) for part in value] if isinstance(value, list | tuple) else value


@contextlib.contextmanager
def storing(folder: Path) -> Iterator[None]:
    """A disk error in this block ends the run in one sentence; what was saved before stays as it is."""
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
            return f"what was saved before is whole: resume with --resume {folder}"
    return "nothing can be resumed from it"


def data_folder() -> Path:
    """Where the data sets' folders lie: COVEY_DATA or, without that, covey/data among the user's data."""
    root = os.environ.get("COVEY_DATA")
    return Path(root) if root else platformdirs.user_data_path("covey") / "data"


def cache_folder() -> Path:
    """Where unpacked arrays and compiled trainers are kept: covey among the user's caches."""
    return platformdirs.user_cache_path("covey")


def new_run_folder(name: str) -> Path:
    """runs/NAME-TIME, not yet there."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = Path("runs") / f"{name}-{stamp}"
    number = 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{name}-{stamp}-{number}"
    return folder


@contextlib.contextmanager
def folder_lock(folder: Path, taken: str | None = None) -> Iterator[None]:
    """Holds the folder against other processes; the system drops the lock even when this process is killed.

    Where another process has it, `taken` is what the user is told; without it, this one waits for its turn.
    """
    with user_error(f"{folder} cannot be opened"):
        place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | (fcntl.LOCK_NB if taken else 0))
    except OSError as error:
        os.close(place)
        raise UserError(taken or f"{folder} cannot be locked: {error}") from error
    try:
        yield
    finally:
        os.close(place)


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
