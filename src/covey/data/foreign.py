"""The folders of PFLlib and FL-bench as files of plain arrays. They hold pickles: anything but arrays is refused.

This is a step of its own, never part of a run: a pickle names functions to call, so it is read by a reader that knows
the few which make NumPy arrays, and refuses a file that names any other function before it is called.
"""

import io
import pickle
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from covey.data.files import array_head, read_idx
from covey.errors import UserError, user_error
from covey.files import replacing

MNIST = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR = {
    "cifar-10-batches-py": ([f"data_batch_{n}" for n in range(1, 6)], "test_batch", "labels"),
    "cifar-100-python": (["train"], "test", "fine_labels"),
}


class _Array:
    """Stands for numpy.ndarray: it can be named, and nothing else."""

    def __init__(self) -> None:
        raise pickle.UnpicklingError("an array is made otherwise")


def _empty(kind: Any, shape: Any, code: Any) -> NDArray[Any]:
    """numpy's _reconstruct as its arrays use it; what is in the array comes after, and must fit."""
    if kind is not _Array or shape != (0,) or code not in (b"b", "b"):
        raise pickle.UnpicklingError("an array begins in an unknown way")
    return np.zeros(0, dtype=np.int8)


def _scalar(dtype: Any, raw: Any = b"") -> Any:
    if not isinstance(dtype, np.dtype) or dtype.hasobject or not isinstance(raw, bytes):
        raise pickle.UnpicklingError("a number of an unknown kind")
    return np.frombuffer(raw, dtype=dtype)[0]


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        raise pickle.UnpicklingError("an array of an unknown kind")
    return np.frombuffer(raw, dtype=dtype).reshape(shape, order=order).copy()


def _latin(text: Any, code: Any) -> bytes:
    if not isinstance(text, str) or code != "latin1":
        raise pickle.UnpicklingError("a text in an unknown code")
    return text.encode("latin1")


ALLOWED: Final[dict[tuple[str, str], Any]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _empty for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
}


class ArraysOnly(pickle.Unpickler):
    """Reads numbers, texts, lists, dicts and NumPy arrays, and refuses whatever else a pickle names."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which makes no array")
        return ALLOWED[module, name]


def read_arrays(content: bytes, where: object) -> Any:
    """What a pickle of plain values and arrays holds."""
    with user_error(f"{where} is refused"):
        return ArraysOnly(io.BytesIO(content), encoding="latin1").load()


def read_stored(content: bytes, where: object) -> Any:
    """What a npy file holds that is no array of numbers, but a pickle of plain values and arrays."""
    file = io.BytesIO(content)
    with user_error(f"{where}: its array is damaged"):
        _, dtype = array_head(file)
    if not dtype.hasobject:
        raise UserError(f"{where}: its array holds {dtype}; these files hold a dict")
    array = read_arrays(file.read(), where)
    return array.item() if isinstance(array, np.ndarray) and array.shape == () else array


def convert_folder(kind: str, folder: Path, out: Path, shape: Sequence[int] = ()) -> dict[str, int]:
    """Writes the folder of another library as one npz file for `data.name = "clients"`; says what is in it."""
    if kind not in KINDS:
        raise UserError(f"kind is {kind!r}; allowed: {', '.join(KINDS)}")
    if out.suffix != ".npz":
        raise UserError(f"out is {out}; its name must end in .npz")
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    arrays = KINDS[kind](folder, tuple(shape))
    with replacing(out) as part:
        np.savez_compressed(part, allow_pickle=False, **arrays)
    held = arrays["split"] != 0
    return {
        "clients": len(np.unique(arrays["client"][~held])),
        "training": int((~held).sum()),
        "test": int(held.sum()),
    }


# ---------------------------------------------------------------------------------------------- PFLlib


def from_pfllib(folder: Path, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    """FOLDER/train/0.npz, 1.npz, ... and the same in test: of each client a dict of x and y."""
    found: list[tuple[int, int, NDArray[Any], NDArray[Any]]] = []
    for split, part in enumerate(("train", "test")):
        files = sorted((folder / part).glob("*.npz"), key=lambda path: (len(path.stem), path.stem))
        if not files:
            raise UserError(f"{folder} holds no {part}/*.npz of PFLlib's")
        for path in files:
            if not path.stem.isdecimal():
                raise UserError(f"{path} is not called after a client, such as 0.npz")
            found.append((int(path.stem), split, *_pair(_stored_dict(path), path)))
    return _together(found, shape)


def _stored_dict(path: Path) -> Any:
    said = f"{path} is not a file of PFLlib's, an npz with one array called data"
    with user_error(said), zipfile.ZipFile(path) as archive:
        content = archive.read("data.npy")
    return read_stored(content, path)


def _pair(data: Any, path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    if not isinstance(data, dict) or not {"x", "y"} <= set(data):
        raise UserError(f"{path}: data is no dict of x and y")
    return _numbers(data["x"], f"{path}: x"), _numbers(data["y"], f"{path}: y")


# ---------------------------------------------------------------------------------------------- FL-bench


def from_fl_bench(folder: Path, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    """FOLDER/partition.pkl: of each client which samples are train, val (taken as training data) and test."""
    path = folder / "partition.pkl"
    try:
        partition = read_arrays(path.read_bytes(), path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}; run FL-bench's generate_data.py first"
        ) from error
    indices = partition.get("data_indices") if isinstance(partition, dict) else None
    if not isinstance(indices, list | tuple):
        raise UserError(f"{path} holds no data_indices, a list with one entry for each client")
    x, y = _samples(folder)
    found = []
    for client, parts in enumerate(indices):
        if not isinstance(parts, dict):
            raise UserError(f"{path}: client {client} has no dict of train and test")
        for name, places in parts.items():
            chosen = np.asarray(places, dtype=np.int64).reshape(-1)
            if len(chosen) and not (chosen.min() >= 0 and chosen.max() < len(x)):
                raise UserError(f"{path}: client {client} has sample {chosen.max()}, but there are {len(x)}")
            found.append((client, int(name == "test"), x[chosen], y[chosen]))
    return _together(found, shape or ((1, 28, 28) if folder.name == "femnist" else ()))


def _samples(folder: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """All samples in FL-bench's order: its own arrays, or torchvision's training files before its test files."""
    for inputs, labels in (("data.npy", "targets.npy"), ("raw/xdata.npy", "raw/ydata.npy")):
        if (folder / inputs).is_file() and (folder / labels).is_file():
            x, y = (_plain(folder / file) for file in (inputs, labels))
            return (x.transpose(0, 3, 1, 2) if x.ndim == 4 and x.shape[-1] in (1, 3) else x), y.reshape(-1)
    for raw in (folder / "MNIST" / "raw", folder / "FashionMNIST" / "raw"):
        if (raw / MNIST[0]).is_file():
            pictures, labels_, tests, others = (read_idx(raw / file) for file in MNIST)
            return np.concatenate([pictures, tests])[:, None], np.concatenate([labels_, others])
    for name, (training, test, key) in CIFAR.items():
        if (folder / name).is_dir():
            batches = [_cifar(folder / name / file, key) for file in (*training, test)]
            x, y = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
            return x.reshape(-1, 3, 32, 32), y
    raise UserError(
        f"{folder} holds no samples that are known: data.npy and targets.npy, raw/xdata.npy and raw/ydata.npy, "
        "MNIST/raw, FashionMNIST/raw, cifar-10-batches-py or cifar-100-python"
    )


def _plain(path: Path) -> NDArray[Any]:
    with user_error(f"{path} is no file of a plain array"):
        found: NDArray[Any] = np.load(path, allow_pickle=False)
        return found


def _cifar(path: Path, key: str) -> tuple[NDArray[Any], NDArray[Any]]:
    with user_error(f"{path} is no batch of CIFAR"):
        batch = read_arrays(path.read_bytes(), path)
        return _numbers(batch["data"], f"{path}: data"), _numbers(batch[key], f"{path}: {key}")


# ---------------------------------------------------------------------------------------------- both


def _numbers(values: Any, where: str) -> NDArray[Any]:
    with user_error(f"{where} has no common shape"):
        found = np.asarray(values)
    if found.dtype.kind not in "biuf":
        raise UserError(f"{where} holds {found.dtype}; only numbers are known")
    return found


def _together(
    parts: Sequence[tuple[int, int, NDArray[Any], NDArray[Any]]], shape: tuple[int, ...]
) -> dict[str, NDArray[Any]]:
    parts = [part for part in parts if len(part[2])]
    if not parts:
        raise UserError("no client has a sample")
    shapes = {part[2].shape[1:] for part in parts}
    if len(shapes) > 1:
        raise UserError(
            f"clients must have inputs of one shape, not {' and '.join(map(str, sorted(shapes)[:2]))}"
        )
    for client, _, x, y in parts:
        if len(x) != len(y):
            raise UserError(f"client {client} has {len(x)} inputs and {len(y)} labels")
    x = np.concatenate([part[2] for part in parts])
    y = np.concatenate([part[3] for part in parts]).reshape(len(x), -1)[:, 0]
    if shape:
        try:
            x = x.reshape(len(x), *shape)
        except ValueError as error:
            raise UserError(f"shape is {shape}; a sample has {x[0].size} values") from error
    if x.dtype.kind == "f":
        x = x.astype(np.float32)
    return {
        "x": x,
        "y": y.astype(np.int64)
        if y.dtype.kind != "f" or np.array_equal(y, np.rint(y))
        else y.astype(np.float32),
        "client": np.concatenate([np.full(len(part[2]), part[0], dtype=np.int64) for part in parts]),
        "split": np.concatenate([np.full(len(part[2]), part[1], dtype=np.uint8) for part in parts]),
    }


KINDS: Final[dict[str, Callable[[Path, tuple[int, ...]], dict[str, NDArray[Any]]]]] = {
    "pfllib": from_pfllib,
    "fl-bench": from_fl_bench,
}
