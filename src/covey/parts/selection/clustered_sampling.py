"""Clustered sampling (Fraboni et al., 2021): one client from each of m urns, so that all are represented on average."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist
from torch import Tensor

from covey.arrays import Array, Integers
from covey.core import SKETCHED, Facts, Key, Round, Shows, part, stream
from covey.parts.selection.plain import PerRound
from covey.parts.steps.size import sizes

SKETCHES: Key[dict[int, Array]] = Key("sampling.sketches", 'add "sketches" to after')
SKETCH = 512  # numbers kept of a client's last update; cosines are then right to about 1 / sqrt(512)

# An urn has room for `sum of sizes` and client k brings the mass m * size_k, in whole numbers: the m urns are filled
# exactly. Urn l draws client k with probability urns[l, k] / sum of sizes.


def urns_by_size(counts: Integers, m: int) -> Integers:
    """Algorithm 1: clients from the largest to the smallest fill one urn after the other."""
    urns = np.zeros((m, len(counts)), dtype=np.int64)
    _pour(urns, m * counts, np.argsort(-counts, kind="stable").tolist(), room=int(counts.sum()))
    return urns


def urns_by_similarity(counts: Integers, updates: Array, m: int, rng: np.random.Generator) -> Integers:
    """Algorithm 2: clients whose last updates point in similar directions share an urn.

    Ward's tree on the rows of the matrix of angles between updates (0 where there is no update yet) is cut where a
    group would hold more than 1/m of the data. The m heaviest groups get an urn each; the clients of the others, from
    the lightest group up and in random order, fill what room is left. A client with more than 1/m has whole urns of
    its own for the excess.
    """
    room = int(counts.sum())
    urns = np.zeros((m, len(counts)), dtype=np.int64)
    mass = m * counts
    own = 0
    for client in np.flatnonzero(mass >= room).tolist():
        whole = int(mass[client] // room)
        urns[own : own + whole, client] = room
        mass[client] -= whole * room
        own += whole
    groups = light_groups(mass, angles(updates), room)
    groups.sort(key=lambda group: -int(mass[group].sum()))
    for urn, group in enumerate(groups[: m - own], start=own):
        urns[urn, group] = mass[group]
    others = [i for group in reversed(groups[m - own :]) for i in rng.permutation(group).tolist()]
    _pour(urns, mass, others, room)
    return urns


def angles(updates: Array) -> Array:
    """arccos of the cosine between every two updates; 0 where one of them is zero."""
    lengths = np.linalg.norm(updates, axis=1)
    outer = np.outer(lengths, lengths)
    cosine = np.divide(updates @ updates.T, outer, out=np.ones_like(outer), where=outer > 0)
    np.fill_diagonal(cosine, 1.0)
    return np.asarray(np.arccos(np.clip(cosine, -1.0, 1.0)))


def light_groups(mass: Integers, distance: Array, room: int) -> list[list[int]]:
    """The largest groups of Ward's tree on the rows of `distance` that weigh no more than `room`."""
    count = len(mass)
    members: dict[int, list[int]] = {i: [i] for i in range(count)}
    if count > 1:
        for step, (left, right, *_) in enumerate(linkage(pdist(distance), "ward")):
            a, b = int(left), int(right)
            if a in members and b in members and mass[members[a] + members[b]].sum() <= room:
                members[count + step] = members.pop(a) + members.pop(b)
    return list(members.values())


def _pour(urns: Integers, mass: Integers, order: Iterable[int], room: int) -> None:
    """Pours the clients' mass into the room that the urns have, urn after urn."""
    urn = 0
    for client in order:
        left = int(mass[client])
        while left:
            free = room - int(urns[urn].sum())
            taken = min(left, free)
            urns[urn, client] += taken
            left -= taken
            urn += int(taken == free)


def draw(urns: Integers, rng: np.random.Generator) -> list[int]:
    """One client, by its position, from every urn; the same client can come twice."""
    shares = urns / urns.sum(axis=1, keepdims=True)
    return [int(rng.choice(urns.shape[1], p=share)) for share in shares]


def sketch(vector: Tensor, seed: int) -> Array:
    """A few numbers with nearly the same inner products: each coordinate, its sign random, is added to a random one."""
    return count_sketch(vector.double().numpy(), SKETCH, stream(seed, "sketch"))


def count_sketch(vector: Array, size: int, rng: np.random.Generator) -> Array:
    """The vector folded to `size` numbers: each of its numbers goes with a random sign to a random place."""
    places, signs = rng.integers(size, size=len(vector)), rng.integers(2, size=len(vector)) * 2 - 1
    return np.asarray(np.bincount(places, weights=signs * vector, minlength=size), np.float64)


@part("select", "urns")
class FromUrns(PerRound):
    """Clustered sampling: one reachable client from each of `per_round` urns.

    A client drawn twice counts twice in the average.

    Args:
        by: urns hold clients of similar size, or of similar updates.
    """

    by: Literal["size", "similarity"] = "size"

    shows: ClassVar[Shows] = Shows(
        what="a sketch of every client's update",
        instead="use cfic with epsilon, which samples from groups, too",
    )

    @property
    def needs(self) -> Facts:
        return (SKETCHES,) if self.by == "similarity" else ()

    def __call__(self, now: Round) -> list[int]:
        known = sizes(now, now.here)
        ids = [i for i in now.here if known.get(i)]
        counts = np.array([known[i] for i in ids], dtype=np.int64)
        m = min(self.per_round, len(ids))
        rng = now.stream("select")
        if self.by == "size":
            urns = urns_by_size(counts, m)
        else:
            urns = urns_by_similarity(counts, _sketches(now, ids), m, rng)
        return sorted(ids[place] for place in draw(urns, rng))


def _sketches(now: Round, ids: Sequence[int]) -> Array:
    kept = SKETCHES.of(now.memory) if now.number > 1 else {}
    return np.stack([kept.get(i, np.zeros(SKETCH)) for i in ids])


@part("after", "sketches", shows=SKETCHED, gives=(SKETCHES,))
def remember_sketches(now: Round) -> None:
    """Keeps a sketch of each client's last update, for the urns of the next rounds."""
    trainable = now.fleet.layout.trainable
    fresh = {
        reply.id: sketch((reply.vector - now.start_of(reply))[:trainable], now.fleet.seed)
        for reply in now.replies
        if reply.vector is not None
    }
    SKETCHES.keep(now.memory, SKETCHES.get(now.memory, {}) | fresh)
