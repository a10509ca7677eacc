"""The 8x8 digits that come with scikit-learn."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from covey.data.convert import stratified_split
from covey.data.loaders.images import Scaling, scale_for
from covey.data.types import Dataset
from covey.errors import UserError
from covey.settings.registry import register


@register("data set", "digits")
def digits(
    *,
    folder: Path | None = None,  # noqa: ARG001  (every loader takes a folder)
    scaling: Scaling = "standard",
) -> Dataset:
    """1,797 handwritten digits of 8x8 pixels, 10 classes, from scikit-learn: no files needed.

    Stored as 1x8x8 images with the values 0..16 stretched to 0..255; 80 % training, 20 % test, split by label
    with a fixed seed.
    """
    values, labels = _stored()
    images = np.rint(values * (255 / 16)).astype(np.uint8)
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


def _stored() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Images and labels from the file that scikit-learn brings; importing it would take most of a short run's start."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise UserError("the data set digits needs scikit-learn, which is not installed")
    table = np.loadtxt(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
