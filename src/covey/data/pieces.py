"""Many arrays that lie one after the other in a single one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Pieces(Sequence[NDArray[np.int64]]):
    """`whole` cut at `ends`: the parts of a million clients are two arrays, not a million objects."""

    whole: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Iterable[NDArray[np.int64]]) -> Pieces:
        """These parts, one after the other."""
        if isinstance(parts, Pieces):
            return parts
        parts = list(parts)
        whole = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        return cls(whole.astype(np.int64, copy=False), np.cumsum(sizes))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """How long each piece is."""
        return np.diff(self.ends, prepend=0)

    @property
    def owners(self) -> NDArray[np.int64]:
        """The piece that each number of the whole belongs to."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, place: int) -> NDArray[np.int64]: ...
    @overload
    def __getitem__(self, place: slice) -> Pieces: ...
    def __getitem__(self, place: int | slice) -> NDArray[np.int64] | Pieces:
        if isinstance(place, slice):
            return Pieces.of(self[i] for i in range(len(self))[place])
        place = range(len(self))[place]  # counts from the end, and refuses what is outside
        return self.whole[self.ends[place - 1] if place else 0 : self.ends[place]]


def table_of_counts(labels: NDArray[np.int64], parts: Pieces, width: int) -> NDArray[np.int64]:
    """How many samples of each label (column) every part (row) holds."""
    cells = parts.owners * width + labels[parts.whole]
    return np.bincount(cells, minlength=len(parts) * width).reshape(len(parts), width)
