"""MNIST, Fashion-MNIST and EMNIST from their official idx files."""

import string
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from covey.data.files import read_idx, read_npz
from covey.data.loaders.images import Scaling, as_images, check_labels, scale_for
from covey.data.sources import SOURCES
from covey.data.types import Dataset, Indices, Scale
from covey.errors import UserError
from covey.settings.registry import register

FILES = tuple(
    f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)
WRITERS = "qmnist_writers.npz"
GARMENTS = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip

BY_CLASS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
MERGED = tuple(string.digits + string.ascii_uppercase + "abdefghnqrt")  # the others look like their capitals


@register("data set", "mnist")
def mnist(*, folder: Path | None = None, scaling: Scaling = "standard") -> Dataset:
    """MNIST: 60,000 + 10,000 handwritten digits of 28x28 pixels, 10 classes; ink is 1, paper 0.

    From the four official idx files, gzipped or not. With qmnist_writers.npz beside them (`writer_train` and
    `writer_test`, in MNIST's order) it has the natural grouping "writer": 539 writers in the training set,
    none of them in the test set.

    Args:
        scaling: unit is [0, 1]; half is (x - 0.5) / 0.5; standard is (x - 0.1307) / 0.3081.
    """
    return _load("mnist", folder, tuple("0123456789"), scaling, Scale((0.1307,), (0.3081,)))


@register("data set", "fashion-mnist")
def fashion_mnist(*, folder: Path | None = None, scaling: Scaling = "standard") -> Dataset:
    """Fashion-MNIST: 60,000 + 10,000 pictures of garments of 28x28 pixels, 10 classes.

    From the four official idx files, gzipped or not.
    """
    return _load("fashion-mnist", folder, GARMENTS, scaling, None)


@register("data set", "emnist")
def emnist(
    *,
    folder: Path | None = None,
    scaling: Scaling = "standard",
    split: Literal["byclass", "bymerge", "balanced"] = "byclass",
) -> Dataset:
    """EMNIST: handwritten digits and letters of 28x28 pixels, 62 classes, or 47 where similar letters are one class.

    From the four official idx files of the split, gzipped or not. They hold the pictures mirrored along the diagonal;
    here they stand upright.

    Args:
        split: byclass is 62 classes; bymerge and balanced (as many of each) are 47.
    """
    classes = BY_CLASS if split == "byclass" else MERGED
    files = tuple(f"emnist-{split}-{file}".replace("t10k", "test") for file in FILES)
    data = _load("emnist", folder, classes, scaling, None, files=files)
    return replace(data, x=data.x.transpose(2, 3).contiguous())


def _load(
    name: str,
    given: Path | None,
    classes: tuple[str, ...],
    scaling: Scaling,
    usual: Scale | None,
    *,
    files: tuple[str, ...] = FILES,
) -> Dataset:
    source = SOURCES[name]
    folder = source.place(given)
    paths = [path if (path := folder / file).is_file() else folder / f"{file}.gz" for file in files]
    source.need(folder, [path.name for path in paths])
    images = [as_images(read_idx(path), path) for path in paths[::2]]
    labels = [
        check_labels(read_idx(path), len(x), len(classes), path)
        for path, x in zip(paths[1::2], images, strict=True)
    ]
    x, train = torch.cat(images), np.arange(len(images[0]))
    return Dataset(
        name=name,
        x=x,
        y=torch.cat(labels),
        train=train,
        test=np.arange(len(train), len(x)),
        classes=classes,
        scale=scale_for(scaling, x, train, usual),
        natural=_writers(folder / WRITERS, len(train), len(x) - len(train)),
    )


def _writers(path: Path, train: int, test: int) -> dict[str, Indices]:
    """Who wrote which image, where the file says so; ids are numbered through from 0."""
    if not path.is_file():
        return {}
    stored = read_npz(path, ["writer_train", "writer_test"])
    if (stored["writer_train"].shape, stored["writer_test"].shape) != ((train,), (test,)):
        raise UserError(f"{path} does not fit its images: it must name {train} + {test} writers")
    _, ids = np.unique(np.concatenate([stored["writer_train"], stored["writer_test"]]), return_inverse=True)
    return {"writer": ids.astype(np.int64)}
