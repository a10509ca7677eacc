"""FEMNIST from all.npz or from LEAF's json files."""

import json
import string
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

from covey.data.files import read_npz
from covey.data.loaders.images import Scaling, as_images, check_labels, scale_for
from covey.data.sources import SOURCES
from covey.data.types import Dataset, Indices
from covey.errors import UserError, user_error
from covey.settings.ranges import Range
from covey.settings.registry import register

CLASSES = (*string.digits, *string.ascii_uppercase, *string.ascii_lowercase)
SIDE = 28
SOURCE = SOURCES["femnist"]


@register("data set", "femnist")
def femnist(
    *,
    folder: Path | None = None,
    scaling: Scaling = "standard",
    first_labels: Annotated[int, Range(1, len(CLASSES))] | None = None,
) -> Dataset:
    """FEMNIST: handwritten digits and letters of 28x28 pixels by many writers, 62 classes (0-9, A-Z, a-z).

    From all.npz (x, y, writer, leaf_split) or from LEAF's train/*.json and test/*.json; the test set is
    LEAF's, some images of every writer. Polarity as in LEAF: paper is 1, ink 0, the other way round from
    MNIST. It has the natural grouping "writer". first_labels keeps only the first classes, as HACCS does with
    10 and 20.

    Args:
        first_labels: keeps only this many of the first classes; none keeps all.
    """
    place = SOURCE.place(folder)
    archive = place / "all.npz"
    if archive.is_file():
        stored = read_npz(archive, ["x", "y", "writer", "leaf_split"])
        x, y, writer, is_test = stored["x"], stored["y"], stored["writer"], stored["leaf_split"] != 0
        if len({len(array) for array in stored.values()}) > 1:
            raise UserError(f"{archive}: x, y, writer and leaf_split have different lengths")
    else:
        archive = place
        x, y, writer, is_test = _read_leaf(place)
    labels = check_labels(y, len(x), len(CLASSES), archive).numpy()
    count = len(CLASSES) if first_labels is None else first_labels
    keep = labels < count
    images = as_images(x[keep], archive)
    train, test = np.flatnonzero(~is_test[keep]), np.flatnonzero(is_test[keep])
    return Dataset(
        name="femnist",
        x=images,
        y=torch.from_numpy(labels[keep]),
        train=train,
        test=test,
        classes=CLASSES[:count],
        scale=scale_for(scaling, images, train),
        natural={"writer": writer[keep].astype(np.int64)},
    )


def _read_leaf(folder: Path) -> tuple[NDArray[np.uint8], Indices, Indices, NDArray[np.bool_]]:
    """Images, labels, writers (numbered by first appearance) and whether each is a test image, from LEAF's json."""
    images, labels, writers, is_test = [], [], [], []
    numbers: dict[str, int] = {}
    for split in ("train", "test"):
        paths = sorted((folder / split).glob("*.json"))
        if not paths:
            raise SOURCE.lacks(folder, ["all.npz", f"{split}/*.json"])
        for path in paths:
            for user, x, y in _read_leaf_file(path):
                images.append(x)
                labels.append(y)
                writers.append(np.full(len(y), numbers.setdefault(user, len(numbers)), dtype=np.int64))
                is_test.append(np.full(len(y), split == "test"))
    return np.concatenate(images), np.concatenate(labels), np.concatenate(writers), np.concatenate(is_test)


def _read_leaf_file(path: Path) -> list[tuple[str, NDArray[np.uint8], Indices]]:
    """The users of one LEAF file with their images (pixel = round(255 * value)) and labels."""
    with user_error(f"{path} is not a LEAF file of 28x28 images"):
        content: Any = json.loads(path.read_bytes())
        found = []
        for user in content["users"]:
            data = content["user_data"][user]
            x = np.asarray(data["x"], dtype=np.float64).reshape(-1, SIDE, SIDE)
            y = np.asarray(data["y"], dtype=np.int64)
            if len(x) != len(y) or not ((x >= 0) & (x <= 1)).all():
                raise ValueError(f"user {user} must have as many images as labels, with values in 0..1")
            found.append((str(user), np.rint(x * 255).astype(np.uint8), y))
        return found
