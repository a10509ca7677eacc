"""Any data set of the Hugging Face Hub by its name, or of a folder that `datasets` reads: images, texts, tables."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covey.data.clients import as_dataset, label_of
from covey.data.convert import from_tensors
from covey.data.image_folder import SidePixels, as_bytes
from covey.data.loaders.images import Scaling, scale_for
from covey.data.table_rows import groups_of
from covey.data.types import Dataset
from covey.data.usual import Usual, declare
from covey.errors import UserError, importing, user_error
from covey.settings.ranges import Count
from covey.settings.registry import register


@register("data set", "huggingface")
def huggingface(
    *,
    path: str,
    label: str | None = None,
    client: str | None = None,
    text: str | None = None,
    subset: str = "",
    revision: str = "",
    side: SidePixels = 64,
    grey: bool = False,
    features: Count = 1024,
    scaling: Scaling = "standard",
) -> Dataset:
    """A data set of the Hugging Face Hub by its name, or a folder of one: images, texts or a table.

    Its split `test` is the test set; without one, 20 % of the rows. Needs the extra `huggingface`.

    Args:
        path: its name, such as ylecun/mnist, or a folder that holds one.
        label: the column to predict; none: the only one that is declared a class.
        client: the column that says whose row it is; with the partition natural, each value is a client.
        text: the column of texts, which become bags of words; none: the only other column, where it holds texts.
        subset: one of several configurations that it has.
        revision: a commit or tag of it, so that it stays the same.
        side: images become `side` x `side` pixels.
        grey: images have one channel in place of three.
        features: how many numbers a text becomes (its words and pairs of words, hashed).
        scaling: of images: unit is [0, 1]; half is (x - 0.5) / 0.5; standard is by mean and standard deviation.
    """
    splits = _splits(path, subset, revision)
    frames = [splits["train"]]
    held = "test" if "test" in splits else next((one for one in splits if one != "train"), None)
    frames += [splits[held]] if held else []
    called = Path(path).name
    column = label_of(frames[0], label)
    if pictures := _of_kind(frames[0], "Image"):
        images = _images(frames, pictures[0], column, client, (side, side), grey, called)
        return replace(images, scale=scale_for(scaling, images.x, images.train), resized=True)
    words = text or _only_text(frames[0], column, client)
    if words is not None:
        return _texts(frames, words, column, client, features, called)
    both = dict(zip(("train", "test"), frames, strict=False))
    return replace(as_dataset(both, label=column, client=client), name=called)


@lru_cache(maxsize=2)
def _splits(path: str, subset: str, revision: str) -> Mapping[str, Any]:
    """The rows by split; those that `datasets` has in its cache are not got again."""
    with importing("data.name is 'huggingface': pip install 'covey[huggingface]'"):
        import datasets
    quiet = datasets.utils.logging
    quiet.set_verbosity_error()
    with user_error(f"data.path is {path!r}, which datasets cannot load"):
        if (Path(path) / "dataset_dict.json").is_file() or (Path(path) / "state.json").is_file():
            found = datasets.load_from_disk(path)
        else:
            found = datasets.load_dataset(path, subset or None, revision=revision or None)
    splits = found if isinstance(found, Mapping) else {"train": found}
    if "train" not in splits:
        raise UserError(f"{path} has the splits {', '.join(splits)}; one must be 'train'")
    return splits


def _of_kind(frame: Any, kind: str) -> list[str]:
    return [column for column, feature in frame.features.items() if type(feature).__name__ == kind]


def _only_text(frame: Any, label: str, client: str | None) -> str | None:
    """The column of inputs where it is the only one and holds texts."""
    others = [column for column in frame.column_names if column not in (label, client)]
    return (
        others[0]
        if len(others) == 1 and getattr(frame.features[others[0]], "dtype", "") == "string"
        else None
    )


def _images(
    frames: list[Any],
    column: str,
    label: str,
    client: str | None,
    size: tuple[int, int],
    grey: bool,
    name: str,
) -> Dataset:
    parts = [
        torch.from_numpy(np.stack([as_bytes(picture, size, grey) for picture in frame[column]]))
        for frame in frames
    ]
    return _made(frames, parts, label, client, name)


def _texts(
    frames: list[Any], column: str, label: str, client: str | None, features: int, name: str
) -> Dataset:
    """Texts as bags of their words and pairs of words, hashed to `features` numbers of length 1."""
    from sklearn.feature_extraction.text import HashingVectorizer

    bag = HashingVectorizer(ngram_range=(1, 2), n_features=features, alternate_sign=False)
    parts = [
        torch.from_numpy(bag.transform([words or "" for words in frame[column]]).toarray().astype(np.float32))
        for frame in frames
    ]
    return _made(frames, parts, label, client, name)


def _made(frames: list[Any], parts: list[torch.Tensor], label: str, client: str | None, name: str) -> Dataset:
    """The data set of inputs that are ready, with labels and clients of the frames' columns."""
    for column in (label, *([client] if client else [])):
        if column not in frames[0].column_names:
            raise UserError(
                f"{name} has no column {column!r}; its columns are {', '.join(frames[0].column_names)}"
            )
    names = getattr(frames[0].features[label], "names", None)
    told = [value for frame in frames for value in frame[label]]
    if names is None and not all(isinstance(value, float) for value in told):
        names = [str(value) for value in sorted(set(told))]
        told = [sorted(set(told)).index(value) for value in told]
    y, cut = torch.as_tensor(told), len(parts[0])
    owners = {client: [str(value) for frame in frames for value in frame[client]]} if client else None
    return from_tensors(
        parts[0],
        y[:cut],
        test=(parts[1], y[cut:]) if len(parts) > 1 else None,
        classes=names,
        natural=owners,
        client=client,
        name=name,
    )


def _usual(*, path: str, client: str | None = None, subset: str = "", revision: str = "", **_: Any) -> Usual:
    """With a client column, each of its values among the training rows is a client."""
    if client is None:
        return Usual()
    frame = _splits(path, subset, revision)["train"]
    if client not in frame.column_names:
        raise UserError(
            f"data.client is {client!r}; the columns of {path} are {', '.join(frame.column_names)}"
        )
    return Usual(
        partition="natural", clients=len(groups_of(frame.with_format("arrow")[:][client], client)[1])
    )


declare(huggingface, usual=_usual)
