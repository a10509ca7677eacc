"""MNIST and Fashion-MNIST from their official idx files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from covey.data.files import find_folder, need, read_idx
from covey.data.types import Dataset, Indices
from covey.errors import UserError

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def mnist(*, folder: Path | None = None) -> Dataset:
    """MNIST: 60,000 + 10,000 handwritten digits of 28x28 pixels, 10 classes (four official idx files).

    The files may be gzipped or not. Pixels are scaled to [0, 1]; ink is 1, paper 0.
    """
    place = find_folder("mnist", folder)
    return _load(
        "mnist", place, "MNIST (LeCun, Cortes and Burges), the four idx files", tuple("0123456789"), {}
    )


def _load(
    name: str, folder: Path, source: str, classes: tuple[str, ...], natural: dict[str, Indices]
) -> Dataset:
    plain = [folder / file for file in FILES]
    paths = [path if path.is_file() else path.with_name(path.name + ".gz") for path in plain]
    need(folder, [path.name for path in paths], source)
    train_x, train_y, test_x, test_y = (read_idx(path) for path in paths)
    for images, labels, path in ((train_x, train_y, paths[0]), (test_x, test_y, paths[2])):
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise UserError(f"{path} and its labels do not fit: shapes {images.shape} and {labels.shape}")
        if labels.max() >= len(classes):
            raise UserError(
                f"the labels beside {path} reach {labels.max()}: {name} has {len(classes)} classes"
            )
    return Dataset(
        name=name,
        x=torch.from_numpy(np.concatenate([train_x, test_x])[:, None]),
        y=torch.from_numpy(np.concatenate([train_y, test_y]).astype(np.int64)),
        train=np.arange(len(train_x)),
        test=np.arange(len(train_x), len(train_x) + len(test_x)),
        classes=classes,
        natural=natural,
    )
