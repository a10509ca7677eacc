"""The 8x8 digits that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from covey.data.convert import stratified_split
from covey.data.types import Dataset


def digits(*, folder: Path | None = None) -> Dataset:  # noqa: ARG001  (every loader takes a folder)
    """1,797 handwritten digits of 8x8 pixels, 10 classes, from scikit-learn: no files needed.

    Stored as 1x8x8 images with the values 0..16 stretched to 0..255; 80 % training, 20 % test, split by label
    with a fixed seed.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    train, test = stratified_split(labels, test_fraction=0.2, rng=np.random.default_rng(0))
    return Dataset(
        name="digits",
        x=torch.from_numpy(images[:, None]),
        y=torch.from_numpy(labels),
        train=train,
        test=test,
        classes=tuple("0123456789"),
    )
