"""What is computed from a client's samples once, and not for every level anew: their bins, and margins under whole
trees.

It changes no result: without it, all of it follows from the row. Nothing of it leaves the process.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Singles

if TYPE_CHECKING:
    from covey.training.trees.forest import Grove

MOST_BYTES = 256_000_000


@dataclass(frozen=True, eq=False)
class Entry:
    """The bins of some samples, and their margins under the first `trees` trees."""

    codes: NDArray[np.uint8]
    margin: Singles
    trees: int
    forest: bytes  # a digest of these trees

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.margin.nbytes


@dataclass
class KeptRows:
    """Entries by the digest of samples and cuts, the oldest forgotten beyond `MOST_BYTES`."""

    entries: OrderedDict[bytes, Entry] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)

    def of(self, grove: Grove, x: Singles, trees: int) -> tuple[NDArray[np.uint8], Singles]:
        """The bins of the samples, and their margins under the first `trees` trees."""
        key = digest(x, grove.cuts)
        with self.lock:
            found = self.entries.get(key)
        codes = found.codes if found else grove.codes(x)
        done, margin = 0, np.repeat(grove.base[None], len(x), axis=0)
        if found and found.trees <= trees and found.forest == forest(grove, found.trees):
            done, margin = found.trees, found.margin
        for tree in range(done, trees):
            margin = grove.added(margin, x, tree)
        with self.lock:
            self.entries[key] = Entry(codes, margin, trees, forest(grove, trees))
            self.entries.move_to_end(key)
            while len(self.entries) > 1 and sum(e.nbytes for e in self.entries.values()) > MOST_BYTES:
                self.entries.popitem(last=False)
        return codes, margin


def forest(grove: Grove, trees: int) -> bytes:
    """A digest of the first trees."""
    return digest(grove.base, *(part[:trees] for part in (grove.value, grove.feature, grove.threshold)))


def digest(*arrays: NDArray[np.generic]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return found.digest()


KEPT = KeptRows()
