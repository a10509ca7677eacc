"""Reading the files of the image data sets: idx, npz, and a cache for those that unpack slowly."""

import contextlib
import gzip
import hashlib
import math
import struct
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from covey.errors import UserError, user_error
from covey.files import cache_folder, free_memory, open_regular, replacing

SLOW = 1_000_000  # bytes of a gzipped file from which on unpacking takes noticeable time


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of bytes (big-endian header, then raw uint8), gzipped or not."""
    large = path.suffix == ".gz" and path.is_file() and path.stat().st_size > SLOW
    return _cached(path, partial(_unpacked, path)) if large else _unpacked(path)


def _unpacked(path: Path) -> NDArray[np.uint8]:
    opened = gzip.open if path.suffix == ".gz" else open_regular
    with user_error(f"{path} cannot be read"), opened(path) as file:
        start = file.read(4)
        if len(start) < 4 or start[:3] != b"\0\0\x08":
            raise UserError(f"{path} is not an idx file of bytes: it begins with {start.hex() or 'nothing'}")
        sizes = file.read(4 * start[3])
        shape = struct.unpack(f">{start[3]}I", sizes) if len(sizes) == 4 * start[3] else ()
        promised = math.prod(shape)
        check_room(path, promised)
        raw = bytearray(file.read(promised + 1))  # of which torch may write to every byte
    if not shape or len(raw) != promised:
        raise UserError(
            f"{path} is cut short or too long: shape {shape}, but "
            f"{len(raw) if len(raw) <= promised else 'more'} bytes"
        )
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def check_room(path: Path, promised: int) -> None:
    """Says that a file unpacks to more than there is memory for, before it is unpacked."""
    free = free_memory()
    if free is not None and promised > free:
        raise UserError(
            f"{path} unpacks to {promised / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB of memory are free; "
            "is it what it should be?"
        )


def read_npz(path: Path, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read arrays of an npz file, never a pickled one; `x` of an LZMA-packed file comes from the cache if it can."""
    with user_error(f"{path} is not a readable npz file of plain arrays"):
        with zipfile.ZipFile(path) as archive:
            slow = any(member.compress_type == zipfile.ZIP_LZMA for member in archive.infolist())
            for key in keys:
                _check_promise(path, archive, f"{key}.npy")
        with np.load(path, allow_pickle=False) as stored:
            absent = [key for key in keys if key not in stored.files]
            if absent:
                raise UserError(f"{path} has no array {', '.join(absent)}: it must hold {', '.join(keys)}")
            return {
                key: _cached(path, partial(stored.__getitem__, key)) if slow and key == "x" else stored[key]
                for key in keys
            }


def _check_promise(path: Path, archive: zipfile.ZipFile, name: str) -> None:
    """An array's head may promise any shape: nothing is made for more bytes than the file holds, or memory has."""
    if name not in archive.namelist():
        return
    with archive.open(name) as member:
        shape, dtype = array_head(member)
    promised, there = math.prod(shape) * dtype.itemsize, archive.getinfo(name).file_size
    if promised > there:
        raise UserError(
            f"{path} is damaged: its array {name[:-4]} is said to have shape {shape}, for which {there:,} bytes are "
            "too few"
        )
    check_room(path, there)


def array_head(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the array in a npy file; what is read next are its numbers."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _cached(path: Path, unpack: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """What a file unpacks to, mapped from the cache or else put there; a cache that cannot be used is no error.

    The mapping is private: pages are read as they are used, and writing to the array changes no file.
    """
    state = path.stat()
    key = hashlib.sha256(f"{path.resolve()}|{state.st_mtime_ns}|{state.st_size}".encode()).hexdigest()[:16]
    place = cache_folder() / f"{path.parent.name}-{path.stem}-{key}.npy"
    try:
        kept: NDArray[Any] = np.load(place, allow_pickle=False, mmap_mode="c")
        return kept.view(np.ndarray)
    except (OSError, EOFError, ValueError):
        unpacked = unpack()
    with contextlib.suppress(OSError), replacing(place) as part:
        np.save(part, unpacked)
    return unpacked
