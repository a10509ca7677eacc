"""Files of data that are split by client already: LEAF's JSON of any data set, and npz files of plain arrays."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from covey.data.clients import from_clients
from covey.data.files import read_npz
from covey.data.image_folder import ENDINGS, SidePixels, pixels_of
from covey.data.loaders.images import Scaling, scale_for
from covey.data.types import Dataset
from covey.data.usual import Usual, declare
from covey.errors import UserError, user_error
from covey.settings.ranges import Part
from covey.settings.registry import register
from covey.settings.signatures import takes, validated

ARRAYS = ("x", "y", "client", "split")  # of an npz file; split: 0 is training, 1 test


@validated
def read_leaf(
    folder: str | Path,
    *,
    shape: Sequence[int] = (),
    images: str | Path | None = None,
    side: SidePixels = 64,
    test_share: Part = 0.2,
    name: str = "",
) -> Dataset:
    """A data set in LEAF's form: FOLDER/train/*.json and FOLDER/test/*.json, each with users and their x and y.

    Inputs are numbers, texts of one length, whose characters become tokens, or names of image files. Labels are whole
    numbers or texts (classes), or numbers with a point (targets). The users are the clients.

    Args:
        folder: with train and test in it.
        shape: of one sample, such as (1, 28, 28).
        images: the folder of image files.
        side: these become `side` x `side` pixels.
        test_share: without test files, this share of every user's samples.
        name: of the data set.

    Returns:
        The data set.

    Raises:
        UserError: where a file is missing or is not in this form.

    Examples:
        >>> import json, pathlib
        >>> pathlib.Path("synthetic/train").mkdir(parents=True)
        >>> user = {"x": [[0.5, 1.0], [1.5, 0.0], [2.5, 1.0]], "y": [0, 1, 1]}
        >>> text = json.dumps({"users": ["u1", "u2"], "user_data": {"u1": user, "u2": user}})
        >>> _ = pathlib.Path("synthetic/train/all_data.json").write_text(text)
        >>> own = covey.read_leaf("synthetic")
    """
    parts = {split: _users(Path(folder), split) for split in ("train", "test")}
    if not parts["train"]:
        raise UserError(f"{folder} holds no train/*.json of LEAF's form")
    texts = [x for users in parts.values() for xs, _ in users.values() for x in xs if isinstance(x, str)]
    pictures = bool(texts) and all(Path(text).suffix.lower() in ENDINGS for text in texts)
    letters = {letter: place for place, letter in enumerate(sorted({c for text in texts for c in text}))}

    def inputs(values: Sequence[Any], user: str) -> NDArray[Any]:
        if pictures:
            if images is None:
                raise UserError(
                    f"{folder} names picture files such as {values[0]}; say in which folder (images)"
                )
            return np.stack([pixels_of(Path(images) / value, side, False) for value in values])
        if letters:
            values = [[letters[c] for c in text] for text in values]
        with user_error(f"{folder}: the inputs of user {user!r} have no common shape"):
            found = np.asarray(values, dtype=np.int64 if letters else np.float32)
            return found.reshape(len(values), *shape) if shape else found

    def pair(user: str, xs: Sequence[Any], ys: Sequence[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        if len(xs) != len(ys):
            raise UserError(f"{folder}: user {user!r} has {len(xs)} inputs and {len(ys)} labels")
        return inputs(xs, user), np.asarray(ys)

    train = {user: pair(user, *data) for user, data in parts["train"].items()}
    tests = {user: pair(user, *data) for user, data in parts["test"].items()}
    clients: dict[str, Any] = {
        user: {"train": data, "test": tests[user]} if user in tests else data for user, data in train.items()
    }
    strangers = [tests[user] for user in tests if user not in train]  # LEAF's split by user
    if strangers and len(strangers) < len(tests):
        raise UserError(
            f"{folder}: some users of the test files train, others do not; allowed: all of them or none"
        )
    whole = tuple(np.concatenate(arrays) for arrays in zip(*strangers, strict=True)) if strangers else None
    dataset = from_clients(
        clients, test=whole, test_share=test_share, name=name or Path(folder).resolve().name
    )
    return replace(dataset, scale=scale_for("standard", dataset.x, dataset.train)) if pictures else dataset


def _users(folder: Path, split: str) -> dict[str, tuple[list[Any], list[Any]]]:
    """What every user of a split has, in the order of the files."""
    found: dict[str, tuple[list[Any], list[Any]]] = {}
    for path, content in _files(folder, split):
        try:
            for user in content["users"]:
                data = content["user_data"][user]
                x, y = found.setdefault(str(user), ([], []))
                x += data["x"]
                y += data["y"]
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{path} is not of LEAF's form: users, and user_data with x and y of each ({error})"
            ) from error
    return {user: data for user, data in found.items() if data[0]}


def _files(folder: Path, split: str) -> Iterator[tuple[Path, Any]]:
    for path in _paths(folder, split):
        with user_error(f"{path} cannot be read as JSON"):
            yield path, json.loads(path.read_bytes())


def _paths(folder: Path, split: str) -> list[Path]:
    return sorted((folder / split).glob("*.json"))


@register("data set", "leaf")
@takes(read_leaf, without=("folder", "name"))
def leaf(*, path: Path, images: Path | None = None, **settings: Any) -> Dataset:
    """Any data set in LEAF's form: PATH/train/*.json and PATH/test/*.json; the users are the clients.

    Args:
        path: the folder with train and test.
        images: the folder of the picture files that the inputs name.
    """
    return read_leaf(path, images=images, **settings)


def _leaf_usual(*, path: Path, **_: Any) -> Usual:
    return Usual(partition="natural", clients=len(_users(Path(path), "train")) or None)


def _leaf_files(*, path: Path, **_: Any) -> list[Path]:
    return [*_paths(Path(path), "train"), *_paths(Path(path), "test")]


declare(leaf, usual=_leaf_usual, files=_leaf_files)


@validated
def read_split(path: str | Path, *, scaling: Scaling = "standard", name: str = "") -> Dataset:
    """A data set of an npz file of plain arrays: x, y, client (whose sample it is) and split (0 training, 1 test).

    `covey convert` writes such files.

    Args:
        path: of the file.
        scaling: of images of bytes (N, C, H, W): unit, half or standard; other inputs are taken as they are.
        name: of the data set.

    Returns:
        The data set.

    Raises:
        UserError: where an array is missing or does not fit the others.

    Examples:
        >>> import numpy as np
        >>> x, y = np.random.rand(20, 3).astype(np.float32), np.arange(20) % 2
        >>> np.savez("mine.npz", x=x, y=y, client=np.repeat([0, 1], 10), split=np.tile([0, 0, 0, 0, 1], 4))
        >>> own = covey.read_split("mine.npz")
    """
    stored = read_npz(Path(path), ARRAYS)
    lengths = {key: len(array) for key, array in stored.items()}
    if len(set(lengths.values())) > 1 or not lengths["x"]:
        raise UserError(
            f"{path}: its arrays have the lengths {', '.join(f'{k} {n}' for k, n in lengths.items())}"
        )
    owners, held = stored["client"].astype(np.int64), stored["split"] != 0
    if not (~held).any():
        raise UserError(f"{path} has no training samples: split is 0 for none of them")
    order = np.concatenate([np.flatnonzero(~held), np.flatnonzero(held)])
    x, y = (torch.from_numpy(np.ascontiguousarray(stored[key][order])) for key in ("x", "y"))
    cut = int((~held).sum())
    trains = set(owners[~held].tolist())
    clients: dict[str, Any] = {
        str(owner): (x[:cut][mine], y[:cut][mine])
        for owner in sorted(trains)
        if len(mine := np.flatnonzero(owners[order][:cut] == owner))
    }
    tests = owners[order][cut:]
    if held.any() and trains.issuperset(tests.tolist()):
        for owner in np.unique(tests).tolist():
            mine = np.flatnonzero(tests == owner)
            clients[str(owner)] = {"train": clients[str(owner)], "test": (x[cut:][mine], y[cut:][mine])}
        whole = None
    else:
        whole = (x[cut:], y[cut:]) if held.any() else None
    dataset = from_clients(clients, test=whole, name=name or Path(path).stem)
    scale = scale_for(scaling, dataset.x, dataset.train) if dataset.x.dtype == torch.uint8 else None
    return replace(dataset, scale=scale)


@register("data set", "clients")
def clients(*, path: Path, scaling: Scaling = "standard") -> Dataset:
    """An npz file that says whose sample each is: arrays x, y, client and split (`covey convert` writes such files).

    Args:
        path: the file.
        scaling: of pictures: unit is [0, 1]; half is (x - 0.5) / 0.5; standard is by mean and standard deviation.
    """
    return read_split(path, scaling=scaling)


def _split_usual(*, path: Path, **_: Any) -> Usual:
    stored = read_npz(Path(path), ("client", "split"))
    return Usual(partition="natural", clients=len(np.unique(stored["client"][stored["split"] == 0])) or None)


def _split_files(*, path: Path, **_: Any) -> list[Path]:
    return [Path(path)]


declare(clients, usual=_split_usual, files=_split_files)
