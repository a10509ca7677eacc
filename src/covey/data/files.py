"""Find and read the files of the image data sets: idx, npz, and a cache for slow ones."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covey.errors import UserError


def find_folder(name: str, folder: Path | None) -> Path:
    """The folder of one data set: the given one, else its folder under COVEY_DATA or ../shared/data."""
    if folder is not None:
        return Path(folder)
    root = os.environ.get("COVEY_DATA")
    return (Path(root) if root else Path("..") / "shared" / "data") / name


def need(folder: Path, wanted: list[str], source: str) -> None:
    """Refuse with one sentence when files are missing: which, where it looked, where to get them."""
    missing = [name for name in wanted if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"missing {', '.join(missing)} in {folder.resolve()}: get {source}, and put the files there, "
            "or name their folder with folder=..., or set COVEY_DATA to the folder above it"
        )


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of bytes (big-endian header, then raw uint8), gzipped or not."""
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise UserError(f"{path} is not an idx file of bytes: it begins with {raw[:4].hex() or 'nothing'}")
    axes = raw[3]
    head = 4 + 4 * axes
    shape = struct.unpack(f">{axes}I", raw[4:head]) if len(raw) >= head else ()
    if not axes or len(raw) - head != int(np.prod(shape, dtype=np.int64)):
        raise UserError(
            f"{path} is cut short or too long: its header says {shape}, it holds {len(raw) - head} bytes"
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=head).reshape(shape)
