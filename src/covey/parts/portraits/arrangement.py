"""One model or many: clusters that look different while their classes lie alike share one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array, Labels
from covey.parts.portraits.clusters import numbered_by_size
from covey.parts.portraits.portrait import Portrait

ALIKE = 0.8  # r from which on classes lie alike: seen are 0.88 and more (brightness to blur), 0.74 and less (turns)
TELLING = 0.2  # share of a cluster's class means that is not noise, from which on a view is informative
MISTAKEN = (
    0.25  # of their distance at home: if a class lies so near to another one elsewhere, it is taken for it
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Joined:
    """Clusters after those whose classes lie alike became one, and the lowest likeness r of two that did."""

    labels: Labels
    likeness: float = 1.0


def joined_clusters(views: Sequence[Sequence[Portrait]], labels: Labels) -> Joined:
    """The clusters that `labels` names, joined from the most alike on; all clusters of a joint one are alike in pairs.

    `views` holds everybody's portraits, once for each way of looking. Two clusters are alike where every view that
    tells anything says so, and one does.
    """
    count = int(labels.max(initial=0)) + 1
    common = [[cluster_portrait(view, labels == cluster) for cluster in range(count)] for view in views]
    alike = np.ones((count, count))
    for a in range(count):
        for b in range(a):
            alike[a, b] = alike[b, a] = min(likeness(view[a], view[b]) for view in common)
    alike[np.isinf(alike)] = -1.0  # no view tells anything
    sets, lowest = [[cluster] for cluster in range(count)], 1.0
    while True:
        pairs = [
            (float(alike[np.ix_(sets[a], sets[b])].min()), a, b) for a in range(len(sets)) for b in range(a)
        ]
        best, a, b = max(pairs, default=(0.0, 0, 0))
        if best < ALIKE:
            break
        lowest = min(lowest, best)
        sets[b] += sets.pop(a)
    names = {cluster: place for place, members in enumerate(sets) for cluster in members}
    return Joined(
        labels=numbered_by_size(np.array([names[int(cluster)] for cluster in labels])), likeness=lowest
    )


def cluster_portrait(portraits: Sequence[Portrait], members: NDArray[np.bool_]) -> Portrait:
    """What a cluster's classes look like: its members' means, weighted as in the distances."""
    chosen = [portrait for portrait, is_in in zip(portraits, members, strict=True) if is_in]
    seen = np.stack([portrait.weights for portrait in chosen])
    total = seen.sum(axis=0)
    sums = np.einsum("ic,ihcd->hcd", seen, np.stack([portrait.halves for portrait in chosen]))
    means = np.divide(sums, total[:, None], out=np.zeros_like(sums), where=total[:, None] > 0)
    return Portrait(counts=total, halves=means)


def likeness(one: Portrait, other: Portrait) -> float:
    """r of two clusters in one view; -1 where a class is taken for another one, infinite where the view tells
    nothing."""
    both = (one.counts > 0) & (other.counts > 0)
    if both.sum() < 2:
        return np.inf
    a, b = one.halves[:, both], other.halves[:, both]
    from_middle_a, from_middle_b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    own = signal(from_middle_a, from_middle_a), signal(from_middle_b, from_middle_b)
    all_told = (from_middle_a**2).sum() / 2, (from_middle_b**2).sum() / 2
    if min(own[0] / max(all_told[0], 1e-12), own[1] / max(all_told[1], 1e-12)) < TELLING:
        return np.inf
    if is_mistaken(a, b):
        return -1.0
    return signal(from_middle_a, from_middle_b) / float(np.sqrt(own[0] * own[1]))


def signal(a: Array, b: Array) -> float:
    """The sum over classes of <A_c, B_c>, without bias: each half of the one with the other half of the other."""
    return float((a[0] * b[1] + a[1] * b[0]).sum() / 2)


def is_mistaken(a: Array, b: Array) -> bool:
    """Whether any class of one cluster lies where another class of the other one does, for want of a common scale.

    Clients that call patients ill from different blood pressures on have classes in the same arrangement, and yet
    contradict each other.
    """
    different = ~np.eye(a.shape[1], dtype=bool)
    at_home = np.minimum(squares(a, a), squares(b, b))[different]
    floor = float(at_home.mean()) / 10
    return bool((squares(a, b)[different] < MISTAKEN * np.maximum(at_home, floor)).any())


def squares(a: Array, b: Array) -> Array:
    """Unbiased squared distances of all classes of one cluster from all of the other."""
    inside_a, inside_b = (a[0] * a[1]).sum(axis=1), (b[0] * b[1]).sum(axis=1)
    return np.asarray(inside_a[:, None] + inside_b[None, :] - a[0] @ b[1].T - a[1] @ b[0].T)
