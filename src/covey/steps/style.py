"""LADD's style of a client (Shenaj et al., 2023): low frequencies of its pictures' Fourier amplitude, averaged.

    S(x) = |FFT2(x)|, zero frequency in the middle, window of half width b around it,  b = floor(share min(h, w))

The amplitude knows nothing of position: it is the same for a picture and its 180 degree turn, and only
transposed by 90 degrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core import Client, Reply, Step, Task
from covey.data.types import Dataset
from covey.errors import UserError
from covey.models.encoders import Pixels
from covey.ranges import Range
from covey.settings import validated
from covey.statistics import Known, Stat
from covey.steps.embedding import class_means
from covey.steps.evaluate import FORWARD_SHARE

Floats = NDArray[np.floating[Any]]

MOST_AMPLITUDE = 1e12  # of pictures of any scale and size; its squares can still be added up
FOURIER_SHARE = 0.1  # a transform and a mean beside a forward pass


def styles(x: Tensor, share: float) -> NDArray[np.float64]:
    """The style of every picture, [samples, channels (2b + 1)^2]."""
    height, width = x.shape[-2:]
    b = int(share * min(height, width))
    amplitude = torch.fft.fftshift(torch.fft.fft2(x.double()), dim=(-2, -1)).abs()
    window = amplitude[..., height // 2 - b : height // 2 + b + 1, width // 2 - b : width // 2 + b + 1]
    return np.asarray(window.flatten(1).numpy())


StyleShare = Annotated[float, Range(0, 0.4)]  # of a side of the picture


@validated
@dataclass(frozen=True, kw_only=True)
class Style(Step):
    """Asks for the mean style: of each class (the embedding paper) or of all pictures (LADD itself)."""

    share: StyleShare = 0.1
    per_class: bool = True

    kind: ClassVar[str] = "query.style"
    of_labels: ClassVar[bool] = True

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        x, y = client.train.tensors()
        dataset = client.train.dataset
        if why := self.unfit(dataset):
            raise UserError(why)
        if dataset.scale is not None:
            x = Pixels(dataset.scale)(x)
        by_class = self.per_class and len(dataset.classes) > 0
        labels = y.numpy() if by_class else np.zeros(len(y), np.int64)
        classes = len(dataset.classes) if by_class else 1
        means = class_means(styles(x, self.share), labels, classes, client.stream("missing classes"))
        return Reply(id=client.id, size=len(y), stats={"style": means.astype(np.float32).reshape(-1)})

    def unfit(self, dataset: Dataset) -> str:
        dimensions = dataset.x.dim() - 1
        return (
            ""
            if dimensions == 3
            else f"the style is one of pictures; a sample here has {dimensions} dimensions, not 3"
        )

    def expects(self, known: Known) -> dict[str, Stat]:
        """Amplitudes: the numbers of one window per channel and class."""
        side = 2 * int(self.share * min(known.shape[-2:])) + 1
        classes = known.classes if self.per_class and known.classes else 1
        return {"style": Stat(low=0.0, high=MOST_AMPLITUDE, shape=(classes * known.shape[0] * side**2,))}

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        return FOURIER_SHARE * FORWARD_SHARE * train
