"""What the image loaders share: the npz layout, checks, and how pixels are scaled."""

from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.data.files import read_npz
from covey.data.sources import Source
from covey.data.types import Indices, Scale
from covey.errors import UserError

# "unit": pixels in [0, 1]. "half": (pixel - 0.5) / 0.5. "standard": by mean and standard deviation of each channel.
Scaling: TypeAlias = Literal["unit", "half", "standard"]


def as_images(x: NDArray[np.uint8], path: Path) -> Tensor:
    """N,H,W or N,H,W,C bytes as one contiguous N,C,H,W tensor."""
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        raise UserError(
            f"{path}: x must be uint8 of shape N,H,W or N,H,W,C, not {x.dtype} of shape {x.shape}"
        )
    planes = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(planes))


def check_labels(y: NDArray[np.integer], images: int, classes: int, path: Path) -> Tensor:
    """The labels as int64, one for each image and inside 0..classes-1."""
    if y.ndim != 1 or len(y) != images or not np.issubdtype(y.dtype, np.integer):
        raise UserError(
            f"{path}: {images} images need as many whole labels, not {y.dtype} of shape {y.shape}"
        )
    if images and not (y.min() >= 0 and y.max() < classes):
        raise UserError(f"{path}: labels run from {y.min()} to {y.max()}, but there are {classes} classes")
    return torch.from_numpy(y.astype(np.int64))


def scale_for(scaling: Scaling, x: Tensor, train: Indices, known: Scale | None = None) -> Scale | None:
    """The scale that a loader's setting asks for: the known usual one, or measured on the training images."""
    channels = x.shape[1]
    if scaling == "unit":
        return None
    if scaling == "half":
        return Scale((0.5,) * channels, (0.5,) * channels)
    return known or _measured(x[torch.from_numpy(train)])


def train_and_test(
    source: Source, given: Path | None, *, labels: str = "y", names: str = "classes"
) -> tuple[Tensor, Tensor, Indices, Indices, tuple[str, ...]]:
    """Images, labels, training and test positions and class names from train.npz and test.npz."""
    folder = source.place(given)
    source.need(folder, ["train.npz", "test.npz"])
    images, targets = [], []
    classes: tuple[str, ...] = ()
    for file in ("train.npz", "test.npz"):
        path = folder / file
        stored = read_npz(path, ["x", labels, names])
        classes = tuple(str(name) for name in stored[names])
        images.append(as_images(stored["x"], path))
        targets.append(check_labels(stored[labels], len(images[-1]), len(classes), path))
    if images[0].shape[1:] != images[1].shape[1:]:
        raise UserError(f"{folder}: train.npz and test.npz hold images of different shapes")
    cut, total = len(images[0]), len(images[0]) + len(images[1])
    return torch.cat(images), torch.cat(targets), np.arange(cut), np.arange(cut, total), classes


def _measured(x: Tensor) -> Scale:
    """Mean and standard deviation of each channel, from the counts of the 256 pixel values."""
    means, stds = [], []
    values = np.arange(256) / 255
    for channel in range(x.shape[1]):
        counts = np.bincount(x[:, channel].reshape(-1).numpy(), minlength=256)
        mean = float(values @ counts / counts.sum())
        means.append(mean)
        stds.append(max(float(np.sqrt(((values - mean) ** 2) @ counts / counts.sum())), 1e-6))
    return Scale(tuple(means), tuple(stds))
