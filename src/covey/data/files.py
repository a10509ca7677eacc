"""Reading the files of the image data sets: idx, npz, and a cache for those that unpack slowly."""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.errors import UserError
from covey.folders import cache_folder

SLOW = 1_000_000  # bytes of a gzipped file from which on unpacking is felt


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of bytes (big-endian header, then raw uint8), gzipped or not."""
    large = path.suffix == ".gz" and path.is_file() and path.stat().st_size > SLOW
    return _cached(path, partial(_unpacked, path)) if large else _unpacked(path)


def _unpacked(path: Path) -> NDArray[np.uint8]:
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise UserError(f"{path} is not an idx file of bytes: it begins with {raw[:4].hex() or 'nothing'}")
    axes = raw[3]
    head = 4 + 4 * axes
    shape = struct.unpack(f">{axes}I", raw[4:head]) if len(raw) >= head else ()
    if not shape or len(raw) - head != int(np.prod(shape, dtype=np.int64)):
        raise UserError(
            f"{path} is cut short or too long: shape {shape}, but {max(len(raw) - head, 0)} bytes"
        )
    # A copy, because torch wants memory that it may write to.
    return np.frombuffer(raw, dtype=np.uint8, offset=head).reshape(shape).copy()


def read_npz(path: Path, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read arrays of an npz file, never a pickled one; `x` of an LZMA-packed file comes from the cache if it can."""
    try:
        with zipfile.ZipFile(path) as archive:
            slow = any(member.compress_type == zipfile.ZIP_LZMA for member in archive.infolist())
        with np.load(path, allow_pickle=False) as stored:
            absent = [key for key in keys if key not in stored.files]
            if absent:
                raise UserError(f"{path} has no array {', '.join(absent)}: it must hold {', '.join(keys)}")
            return {
                key: _cached(path, partial(stored.__getitem__, key)) if slow and key == "x" else stored[key]
                for key in keys
            }
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} is not a readable npz file of plain arrays: {error}") from error


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
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, suffix=".tmp", delete=False) as part:
            try:
                np.save(part, unpacked)
                part.close()
                os.replace(part.name, place)
            except BaseException:
                os.unlink(part.name)
                raise
    except OSError:
        pass
    return unpacked
