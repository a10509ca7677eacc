"""The 8x8 digits that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from covey.data.convert import stratified_split
from covey.data.loaders.images import Scaling, scale_for
from covey.data.types import Dataset
from covey.settings import validated_in


@validated_in("data")
def digits(
    *,
    folder: Path | None = None,  # noqa: ARG001  (every loader takes a folder)
    scaling: Scaling = "standard",
) -> Dataset:
    """1,797 handwritten digits of 8x8 pixels, 10 classes, from scikit-learn: no files needed.

    Stored as 1x8x8 images with the values 0..16 stretched to 0..255; 80 % training, 20 % test, split by label
    with a fixed seed.

    Args:
        scaling: unit is [0, 1]; half is (x - 0.5) / 0.5; standard is by mean and standard deviation.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    train, test = stratified_split(labels, test_fraction=0.2, rng=np.random.default_rng(0))
    x = torch.from_numpy(images[:, None])
    return Dataset(
        name="digits",
        x=x,
        y=torch.from_numpy(labels),
        train=train,
        test=test,
        classes=tuple("0123456789"),
        scale=scale_for(scaling, x, train),
    )
