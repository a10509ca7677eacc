"""Inner products of the clients' rows."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def products(vectors: Sequence[Tensor], block: int = 1 << 16) -> NDArray[np.float64]:
    """All inner products, in float64, a block of columns at a time so that no second copy of the vectors is needed."""
    gram = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for start in range(0, len(vectors[0]), block):
        part = torch.stack([vector[start : start + block] for vector in vectors]).double()
        gram += part @ part.T
    array: NDArray[np.float64] = gram.numpy()
    return array
