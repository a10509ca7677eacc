"""Clusters of a large fleet: found on a sample that is compared each with each; everybody else joins the nearest.

The exact tree needs all pairs of clients, so time and memory that grow with their square, and 15 kB of bits from each.
Above `COMPARED` clients only a sample's portraits are kept. The others describe themselves block by block, are placed,
and what they told is forgotten but for the label that stands out most.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Singles
from covey.core import Key
from covey.parts.portraits.portrait import ENOUGH, LEAST, Portrait, sizes_of
from covey.parts.steps.embedding import unpack

COMPARED = 2000  # clients that are compared each with each
BLOCK = 1000  # clients that are asked at a time: 15 MB of bits

# what the others are placed by, as plain arrays: a checkpoint holds it
NEAREST: Key[dict[str, Any]] = Key("what clusters look like")
# client -> the label that stands out most (CFIC, eq. 2), where the portrait itself is not kept
OUTSTANDING: Key[dict[int, int]] = Key("outstanding labels")


def blocks(ids: Sequence[int]) -> Iterator[list[int]]:
    """The clients in parts that are asked one after the other."""
    for first in range(0, len(ids), BLOCK):
        yield list(ids[first : first + BLOCK])


@dataclass(frozen=True, kw_only=True, eq=False)
class Nearest:
    """What clusters look like in one view: counts [k, classes], class means of two halves [k, 2, classes, d].

    A client's distance to a cluster is the weighted mean over the classes that both hold of <A_i - A_k, B_i - B_k>,
    unbiased as that of two clients. `names` are the clusters' groups, `usual` is that of whoever shares no class.
    """

    view: int
    counts: Singles
    halves: Singles
    names: NDArray[np.int64]
    usual: int

    @classmethod
    def of(cls, view: int, common: Sequence[Portrait], names: Sequence[int], sizes: Sequence[int]) -> Self:
        """Of the clusters' own portraits."""
        return cls(
            view=view,
            counts=np.stack([one.counts for one in common]).astype(np.float32),
            halves=np.stack([one.halves for one in common]).astype(np.float32),
            names=np.array(names, np.int64),
            usual=int(names[int(np.argmax(sizes))]),
        )

    def groups(self, told: Mapping[int, Mapping[str, Any]], flip: float) -> dict[int, int]:
        """The group of everybody who told as many bits as the clusters have."""
        classes, values = self.halves.shape[2:]
        fits: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for client, one in told.items():
            views = sizes_of(one) or []
            if len(one["counts"]) == classes and [v for v, _ in views[self.view : self.view + 1]] == [values]:
                fits.setdefault(tuple(views), []).append(client)
        found: dict[int, int] = {}
        for shape, clients in fits.items():
            bits = np.stack([np.asarray(told[i]["bits"], np.uint8) for i in clients])
            counts = np.stack([np.asarray(told[i]["counts"], np.float32) for i in clients])
            halves = means_of(bits, shape, self.view, classes, flip)
            found.update(zip(clients, self.nearest(counts, halves).tolist(), strict=True))
        return found

    def nearest(self, counts: Singles, halves: Singles) -> NDArray[np.int64]:
        """The group of each client, of counts [n, classes] and halves [n, 2, classes, d]."""
        seen = np.where(counts >= LEAST, np.minimum(counts, ENOUGH), 0.0)
        total = np.zeros((len(counts), len(self.names)))
        weight = np.zeros_like(total)
        for label in range(counts.shape[1]):
            first, second = halves[:, 0, label], halves[:, 1, label]
            theirs, others = self.halves[:, 0, label], self.halves[:, 1, label]
            own, common = (first * second).sum(axis=1), (theirs * others).sum(axis=1)
            squares = own[:, None] + common[None, :] - first @ others.T - second @ theirs.T
            both = seen[:, label, None] * (self.counts[None, :, label] > 0)
            total += both * squares
            weight += both
        mean = np.divide(total, weight, out=np.full_like(total, np.inf), where=weight > 0)
        known = np.isfinite(mean).any(axis=1)
        return np.where(known, self.names[mean.argmin(axis=1)], self.usual)

    def plain(self) -> dict[str, Any]:
        """For the server's memory."""
        return dict(vars(self))

    @classmethod
    def in_memory(cls, memory: Mapping[str, Any]) -> Self:
        kept = dict(NEAREST.of(memory))
        kept["counts"], kept["halves"] = (np.asarray(kept[name], np.float32) for name in ("counts", "halves"))
        kept["names"] = np.asarray(kept["names"], np.int64)
        return cls(**kept)


def means_of(
    bits: NDArray[np.uint8], views: Sequence[tuple[int, int]], view: int, classes: int, flip: float
) -> Singles:
    """Unbiased class means of many clients in one view, [n, 2, classes, d], of bits [n, bytes]."""
    before = sum(values * times for values, times in views[:view])
    values, times = views[view]
    whole = sum(values * times for values, times in views)
    if not (times % 8 or before % 8 or whole % 8):  # whole bytes: counted without taking them apart
        ones = np.bitwise_count(bits).reshape(len(bits), 2, classes, whole // 8)
        part = ones[..., before // 8 : (before + values * times) // 8].reshape(*ones.shape[:3], values, -1)
    else:
        apart = unpack(bits)[:, : 2 * classes * whole].reshape(len(bits), 2, classes, whole)
        part = apart[..., before : before + values * times].reshape(*apart.shape[:3], values, times)
    share = part.sum(axis=-1, dtype=np.int32).astype(np.float32) / times
    return np.asarray((share - flip) / (1 - 2 * flip), np.float32)
