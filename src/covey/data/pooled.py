"""Samples of several clients, or of one before and after a change, as if they lay in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.data.types import Dataset, Indices, View


@dataclass(frozen=True, eq=False)
class Pooled:
    """Several clients' samples as if they lay in one place."""

    parts: Sequence[View]

    @property
    def dataset(self) -> Dataset:
        return self.parts[0].dataset

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def tensors(self) -> tuple[Tensor, Tensor]:
        x, y = zip(*(part.tensors() for part in self.parts), strict=True)
        return torch.cat(x), torch.cat(y)

    def labels(self) -> NDArray[np.generic]:
        return np.concatenate([part.labels() for part in self.parts])

    def units(self) -> Indices | None:
        found = [units for part in self.parts if (units := part.units()) is not None]
        return np.concatenate(found) if found else None

    def select(self, positions: NDArray[np.integer] | slice) -> Pooled:
        """The samples at these positions, in this order: one part for each stretch that lies at one client."""
        wanted = np.arange(len(self))[positions]
        ends = np.cumsum([len(part) for part in self.parts])
        owner = np.searchsorted(ends, wanted, side="right")
        if not len(wanted):
            return Pooled([self.parts[0].select(wanted)])
        cuts = np.flatnonzero(np.diff(owner)) + 1
        stretches = zip(owner[np.r_[0, cuts]].tolist(), np.split(wanted, cuts), strict=True)
        return Pooled(
            [self.parts[i].select(places - (ends[i] - len(self.parts[i]))) for i, places in stretches]
        )
