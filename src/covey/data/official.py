"""Official archives as the files that loaders read: CIFAR's binary form, SVHN's .mat, EMNIST's zip; no pickles."""

import shutil
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.errors import user_error
from covey.files import replacing

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Ready:
    """What is made of a data set's official files, and by which function of their folder."""

    files: tuple[str, ...]
    make: Callable[[Path], None]


def cifar10(folder: Path) -> None:
    """cifar-10-binary.tar.gz: records of a label and 3,072 bytes, colours one after the other."""
    archive = folder / "cifar-10-binary.tar.gz"
    with _readable(archive), tarfile.open(archive) as files:
        names = _lines(files, "cifar-10-batches-bin/batches.meta.txt")
        batches = [f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)]
        for out, members in (("train", batches), ("test", ["cifar-10-batches-bin/test_batch.bin"])):
            rows = np.concatenate([_records(files, member, labels=1) for member in members])
            _store(folder / f"{out}.npz", x=_pictures(rows), y=rows[:, 0].astype(np.int64), classes=names)
    archive.unlink()


def cifar100(folder: Path) -> None:
    """cifar-100-binary.tar.gz: records of a coarse label, a fine one and 3,072 bytes."""
    archive = folder / "cifar-100-binary.tar.gz"
    with _readable(archive), tarfile.open(archive) as files:
        fine = _lines(files, "cifar-100-binary/fine_label_names.txt")
        coarse = _lines(files, "cifar-100-binary/coarse_label_names.txt")
        for out in ("train", "test"):
            rows = _records(files, f"cifar-100-binary/{out}.bin", labels=2)
            _store(
                folder / f"{out}.npz",
                x=_pictures(rows),
                y=rows[:, 1].astype(np.int64),
                y_coarse=rows[:, 0].astype(np.int64),
                classes=fine,
                coarse_classes=coarse,
            )
    archive.unlink()


def svhn(folder: Path) -> None:
    """train_32x32.mat and test_32x32.mat: pictures along the last axis, the digit 0 labelled 10."""
    from scipy.io import loadmat

    for split in ("train", "test"):
        file = folder / f"{split}_32x32.mat"
        with _readable(file):
            held = loadmat(file, variable_names=["X", "y"])
            x, y = held["X"].transpose(3, 0, 1, 2), held["y"].ravel().astype(np.int64) % 10
            if x.dtype != np.uint8 or x.shape != (len(y), 32, 32, 3):
                raise ValueError(f"X is {x.dtype} of shape {held['X'].shape}, and there are {len(y)} labels")
        _store(folder / f"{split}.npz", x=x, y=y, classes=np.array(list("0123456789")))
    for split in ("train", "test"):
        (folder / f"{split}_32x32.mat").unlink()


def emnist(folder: Path) -> None:
    """gzip.zip: the idx files of all splits, of which those that a loader reads are taken out."""
    archive = folder / "gzip.zip"
    with _readable(archive), zipfile.ZipFile(archive) as files:
        for name in EMNIST:
            with files.open(f"gzip/{name}") as member, replacing(folder / name) as part:
                shutil.copyfileobj(member, part)
    archive.unlink()


EMNIST = tuple(
    f"emnist-{split}-{part}-{kind}-ubyte.gz"
    for split in ("byclass", "bymerge", "balanced")
    for part in ("train", "test")
    for kind in ("images-idx3", "labels-idx1")
)
ARRAYS = ("train.npz", "test.npz")
READY = {
    "cifar10": Ready(ARRAYS, cifar10),
    "cifar100": Ready(ARRAYS, cifar100),
    "svhn": Ready(ARRAYS, svhn),
    "emnist": Ready(EMNIST, emnist),
}


def _readable(path: Path) -> AbstractContextManager[None]:
    """Errors in this block are one sentence about the file."""
    return user_error(f"{path} is not the official file")


def _member(files: tarfile.TarFile, name: str) -> bytes:
    found = files.extractfile(name)
    if found is None:
        raise ValueError(f"{name} is no file")
    return found.read()


def _lines(files: tarfile.TarFile, name: str) -> NDArray[np.str_]:
    return np.array(
        [line.strip() for line in _member(files, name).decode("ascii").splitlines() if line.strip()]
    )


def _records(files: tarfile.TarFile, name: str, *, labels: int) -> NDArray[np.uint8]:
    raw = np.frombuffer(_member(files, name), dtype=np.uint8)
    if not len(raw) or len(raw) % (labels + PIXELS):
        raise ValueError(
            f"{name} has {len(raw):,} bytes, which is no whole number of records of {labels + PIXELS:,}"
        )
    return raw.reshape(-1, labels + PIXELS)


def _pictures(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """N,H,W,C of records that end in red, green and blue planes."""
    return rows[:, -PIXELS:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _store(place: Path, **arrays: NDArray[Any]) -> None:
    with replacing(place) as part:
        np.savez(part, allow_pickle=False, **arrays)
