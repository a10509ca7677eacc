"""Groups that live on: unseen clients go to the nearest centroid, those that drift migrate or found a new group.

All functions take a `Membership` and give a new one. Vectors are the clients' latest; centroids are the means of their
groups' members, so that they follow whatever the members do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Numbers

BLOCK = 20_000  # vectors compared at once
SIGMAS = 3.0  # a client fits a group when it is no farther from its centroid than mean + 3 deviations of the members


@dataclass(frozen=True, kw_only=True, eq=False)
class Membership:
    """Who is in which group, by which vector; `parents[g]` is the group that g was most like when it was founded."""

    ids: tuple[int, ...]
    vectors: Numbers  # [clients, d], in the order of `ids`
    labels: NDArray[np.int64]
    parents: tuple[int, ...]

    @property
    def groups(self) -> dict[int, int]:
        return {client: int(label) for client, label in zip(self.ids, self.labels, strict=True)}


def founded(ids: tuple[int, ...], vectors: Numbers, labels: NDArray[np.int64]) -> Membership:
    """The membership after the first clustering."""
    count = int(labels.max(initial=-1)) + 1
    return Membership(ids=ids, vectors=vectors, labels=labels, parents=tuple(range(count)))


def centroids(membership: Membership) -> NDArray[np.float64]:
    """The mean vector of each group, [groups, d]; a group that everybody left is infinitely far away."""
    count = len(membership.parents)
    sizes = np.bincount(membership.labels, minlength=count)
    means = np.full((count, membership.vectors.shape[1]), np.inf)
    for group in np.flatnonzero(sizes):
        means[group] = membership.vectors[membership.labels == group].mean(axis=0)
    return means


def distances(vectors: Numbers, means: Numbers) -> NDArray[np.float64]:
    """Euclidean distance of every vector to every centroid, [vectors, groups], a block of vectors at a time."""
    there = np.isfinite(means).all(axis=1)
    known = means[there].astype(np.float64)
    far = np.full((len(vectors), len(means)), np.inf)
    for start in range(0, len(vectors), BLOCK):
        part = vectors[start : start + BLOCK].astype(np.float64)
        squares = np.square(part).sum(axis=1)[:, None] - 2 * part @ known.T + np.square(known).sum(axis=1)
        far[start : start + BLOCK, there] = np.sqrt(np.maximum(squares, 0))
    return far


def settled(vectors: Numbers, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Everybody goes once to the group with the nearest mean, where an unseen client with the same vector would go.

    A tree never undoes a merge; this corrects the few vectors that it placed too early.
    """
    means = np.stack([vectors[labels == group].mean(axis=0) for group in range(int(labels.max()) + 1)])
    return np.unique(distances(vectors, means).argmin(axis=1), return_inverse=True)[1].astype(np.int64)


def radius(membership: Membership) -> float:
    """How far from its own centroid a member can be: mean + 3 deviations over all members.

    A member pulls its centroid towards itself: among s members it looks sqrt((s - 1) / s) times as far as it is, which
    is corrected first.
    """
    sizes = np.bincount(membership.labels, minlength=len(membership.parents))[membership.labels]
    several = sizes > 1
    if not several.any():
        return math.inf
    own = distances(membership.vectors, centroids(membership))[
        np.arange(len(membership.ids)), membership.labels
    ]
    fair = own[several] * np.sqrt(sizes[several] / (sizes[several] - 1))
    return float(fair.mean() + SIGMAS * fair.std())


def joined(membership: Membership, arrived: Mapping[int, Numbers]) -> Membership:
    """Unseen clients go to the group with the nearest centroid."""
    if not arrived:
        return membership
    vectors = np.stack(list(arrived.values()))
    labels = distances(vectors, centroids(membership)).argmin(axis=1)
    return replace(
        membership,
        ids=(*membership.ids, *arrived),
        vectors=np.concatenate([membership.vectors, vectors]),
        labels=np.concatenate([membership.labels, labels]),
    )


def drifted_groups(membership: Membership, latest: Mapping[int, Numbers], min_size: int = 2) -> Membership:
    """Takes in the latest vectors of known clients; those that no longer fit migrate.

    A client stays while it is within `radius` of its own centroid; otherwise it goes to the nearest one. But if
    `min_size` or more clients fit nowhere and are as similar to each other as members are, they found a new group.
    """
    limit, means = radius(membership), centroids(membership)
    place = {client: at for at, client in enumerate(membership.ids)}
    moved = np.array([place[client] for client in sorted(latest)], np.int64)
    vectors, labels = membership.vectors.copy(), membership.labels.copy()
    if not len(moved):
        return membership
    vectors[moved] = np.stack([latest[client] for client in sorted(latest)])
    far = distances(vectors[moved], means)
    nearest = far.argmin(axis=1)
    own = far[np.arange(len(moved)), labels[moved]]
    misfit = own > limit
    nowhere = misfit & (far.min(axis=1) > limit)
    labels[moved[misfit]] = nearest[misfit]
    parents = list(membership.parents)
    for band in alike(vectors[moved[nowhere]], math.sqrt(2) * limit):
        members = moved[nowhere][band]
        if len(members) >= min_size:
            parents.append(int(np.bincount(nearest[nowhere][band]).argmax()))
            labels[members] = len(parents) - 1
    return replace(membership, vectors=vectors, labels=labels, parents=tuple(parents))


def alike(vectors: Numbers, apart: float) -> list[NDArray[np.int64]]:
    """Positions of the vectors, in sets whose mean distance inside is at most `apart` (average linkage).

    Two members of one group are sqrt(2) times as far from each other as from their centroid.
    """
    if len(vectors) < 2:
        return [np.arange(len(vectors))]
    from sklearn.cluster import AgglomerativeClustering

    found = AgglomerativeClustering(n_clusters=None, distance_threshold=apart, linkage="average")
    labels = found.fit_predict(np.asarray(vectors, np.float64))
    return [np.flatnonzero(labels == label) for label in range(int(labels.max()) + 1)]
