"""Clusters: clients whose classes look alike, found by average linkage on unbiased distances and a cut that knows
noise.

One cluster is a valid answer, and the answer on IID data and under label skew alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array, Labels
from covey.parts.portraits.portrait import Portrait


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassDistances:
    """D_ij and how sure it is: the total weight of the classes that were compared (0: none in common, D is unknown).

    `seen` says how many samples of each class [clients, classes] the comparison went by, `held` whether the client has
    the class at all.
    """

    distance: Array
    weight: Array
    seen: Array
    held: NDArray[np.bool_]

    @property
    def unknown(self) -> float:
        """The share of pairs of clients that have no class in common, and cannot be compared."""
        pairs = len(self.weight) * (len(self.weight) - 1)
        return float((self.weight == 0).sum() - len(self.weight)) / pairs if pairs else 0.0

    def classes_in(self, labels: Labels) -> Labels:
        """How many classes each cluster's clients have."""
        held = [(self.seen[labels == one] > 0).any(axis=0).sum() for one in range(int(labels.max()) + 1)]
        return np.array(held, np.int64)

    def share_no_class(self, labels: Labels) -> bool:
        """Whether no class is held in two of the clusters, not even where it is too little to be compared."""
        held = [self.held[labels == one].any(axis=0) for one in range(int(labels.max()) + 1)]
        return bool((np.sum(held, axis=0) <= 1).all())


def class_distances(portraits: Sequence[Portrait]) -> ClassDistances:
    """All pairs of clients; the matrices are symmetric, their diagonals 0."""
    seen = np.stack([portrait.weights for portrait in portraits])
    halves = np.stack([portrait.halves for portrait in portraits])  # [clients, 2, classes, d]
    total = np.zeros((len(portraits), len(portraits)))
    weight = np.zeros_like(total)
    for label in np.flatnonzero((seen > 0).sum(axis=0) > 1):
        first, second = halves[:, 0, label], halves[:, 1, label]
        product = first @ second.T
        own = np.diagonal(product)
        squares = own[:, None] + own[None, :] - product - product.T
        sure = pair_weights(seen[:, label])
        total += sure * squares
        weight += sure
    np.fill_diagonal(total, 0.0)
    np.fill_diagonal(weight, 0.0)
    unit = between_classes(halves, seen)
    distance = np.divide(total, weight * unit, out=np.zeros_like(total), where=weight > 0)
    held = np.stack([portrait.counts for portrait in portraits]) >= 1
    return ClassDistances(distance=distance, weight=weight, seen=seen, held=held)


def pair_weights(counts: Array) -> Array:
    """n_i n_j / (n_i + n_j): the inverse variance of a difference of two means; 0 where one has no samples."""
    both = counts[:, None] * counts[None, :]
    return np.divide(both, counts[:, None] + counts[None, :], out=np.zeros_like(both), where=both > 0)


def between_classes(halves: Array, seen: Array) -> float:
    """The mean squared distance of two classes of one client, in the same unbiased way; 1 where it cannot be told."""
    total = weight = 0.0
    for (first, second), counts in zip(halves, seen, strict=True):
        product = first @ second.T
        own = np.diagonal(product)
        squares = own[:, None] + own[None, :] - product - product.T
        sure = pair_weights(counts)
        np.fill_diagonal(sure, 0.0)
        total += float((sure * squares).sum())
        weight += float(sure.sum())
    return total / weight if weight > 0 and total > 0 else 1.0


def on_a_map(found: ClassDistances, directions: int = 4) -> Array:
    """Places of the clients whose squared distances are D as nearly as can be (classical scaling), for the report."""
    count = len(found.distance)
    known = np.where(found.weight > 0, found.distance, 0.0)
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centre @ known @ centre)
    largest = np.argsort(values)[::-1][:directions]
    return np.asarray(vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0.0)))


APART = 0.1  # two clusters are at least so far apart, in units of the distance between classes
TIGHT = (
    0.35  # and their members are closer to each other than this share of the distance to the next cluster,
)
GAP = 0.5  # or nobody is in between: low margins are at least half of the usual ones
SIGMAS = 4.0  # which must stand out of its noise by that many standard errors
MOST = 12  # clusters
SETTLING = 20  # rounds in which everybody may move to a nearer cluster


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterCut:
    """One clustering: a label per client, how far the nearest two clusters are apart, and how wide clusters are inside.

    `apart` is infinite where no two clusters have a class in common: nothing is known of their distance. `unknown` is
    the share of pairs of clients that could not be compared.
    """

    labels: Labels
    apart: float
    inside: float
    unknown: float = 0.0

    @property
    def count(self) -> int:
        return int(self.labels.max(initial=0)) + 1


def clusters(found: ClassDistances, *, min_size: int = 2) -> ClusterCut:
    """The finest cut of the tree whose clusters stand apart; everybody is one cluster where no cut does.

    A cut counts when its nearest clusters are APART, by more than SIGMAS standard errors, and wide inside by less than
    TIGHT of that or with a GAP between them. Clusters without a common class are not compared: where none of them has
    one, they are apart. Clusters below `min_size` join the nearest other one first.
    """
    one = ClusterCut(labels=np.zeros(len(found.distance), np.int64), apart=0.0, inside=0.0)
    best = one
    merged = tree(found)
    for count in range(2, min(MOST, len(one.labels) // max(1, min_size)) + 1):
        labels = settled(found, without_small(found, cut_into(merged, len(one.labels), count), min_size))
        labels = without_small(found, labels, min_size)
        cut = judged(found, labels)
        if cut is not None and cut.count > best.count:
            best = cut
    return replace(best, unknown=found.unknown)


def judged(found: ClassDistances, labels: Labels) -> ClusterCut | None:
    """The clustering with its distances; None where its clusters do not stand apart."""
    count = int(labels.max(initial=0)) + 1
    if count < 2:
        return None
    between = [
        mean_distance(found, labels == a, labels == b) for a in range(count) for b in range(a + 1, count)
    ]
    inside = [mean_distance(found, labels == a, labels == a) for a in range(count)]
    width = max(
        0.0, float(np.average([m for m, _, _ in inside], weights=[max(w, 1e-12) for _, _, w in inside]))
    )
    known = [one for one in between if one[2] > 0]  # unknown does not mean alike
    if not known:  # sets without a common class; with a single class in one there is nothing to tell apart
        disjoint = found.share_no_class(labels) and found.classes_in(labels).min() > 1
        return ClusterCut(labels=labels, apart=np.inf, inside=width) if disjoint else None
    nearest, error, _ = min(known)
    is_clear = width < TIGHT * nearest or gap(found, labels) > GAP
    stands_out = nearest > max(APART, SIGMAS * error) and is_clear
    return ClusterCut(labels=labels, apart=nearest, inside=width) if stands_out else None


def gap(found: ClassDistances, labels: Labels) -> float:
    """How empty the space between clusters is: of each cluster the tenth-percentile margin over the median one; the
    least.

    A client's margin is how much nearer its own cluster is than the next. Where clusters differ, nobody is in between,
    and all margins are alike; a cut through a continuum, as between writers' hands, leaves many clients close to it.
    """
    inside = np.eye(int(labels.max()) + 1)[labels]
    weight = found.weight @ inside
    mean = np.divide(
        (found.weight * found.distance) @ inside, weight, out=np.full_like(weight, np.inf), where=weight > 0
    )
    own = mean[np.arange(len(labels)), labels]
    others = np.where(inside > 0, np.inf, mean).min(axis=1)
    margins = np.full(len(labels), np.nan)  # next to nobody that can be compared
    np.subtract(others, own, out=margins, where=np.isfinite(others) & np.isfinite(own))
    shares = []
    for cluster in range(inside.shape[1]):
        known = margins[labels == cluster]
        known = known[np.isfinite(known)]
        if len(known):
            middle, low = float(np.median(known)), float(np.percentile(known, 10))
            shares.append(low / middle if middle > 0 else 0.0)
    return min(shares, default=0.0)


def mean_distance(
    found: ClassDistances, first: NDArray[np.bool_], second: NDArray[np.bool_]
) -> tuple[float, float, float]:
    """The weighted mean distance of two sets of clients, its standard error and its weight; pairs of a client are none.

    The pairs of one client share its noise, so the error counts clients, not pairs.
    """
    block = np.ix_(first, second)
    weight, distance = found.weight[block], found.distance[block]
    total = float(weight.sum())
    if total == 0:
        return 0.0, 0.0, 0.0
    mean = float((weight * distance).sum() / total)
    spread = float((weight * (distance - mean) ** 2).sum() / total)
    clients = max(1, min(int(first.sum()), int(second.sum())))
    return mean, float(np.sqrt(spread / clients)), total


def tree(found: ClassDistances) -> list[tuple[int, int]]:
    """Average linkage: the merges in their order, each by the lowest-numbered clients of its two clusters.

    The distance of two clusters is the weighted mean over their pairs; clusters that share no class come last.
    """
    count = len(found.distance)
    sums, weights = found.distance * found.weight, found.weight.copy()
    mean = np.divide(sums, weights, out=np.full_like(sums, np.inf), where=weights > 0)
    np.fill_diagonal(mean, np.inf)
    alive = np.ones(count, bool)
    # of every row its nearest cluster: only rows that pointed at the two merged ones are searched again
    nearest = mean.argmin(axis=1)
    least = mean[np.arange(count), nearest]
    merges: list[tuple[int, int]] = []
    for _ in range(count - 1):
        row = int(least.argmin())
        a, b = (
            sorted((row, int(nearest[row])))
            if np.isfinite(least[row])
            else np.flatnonzero(alive)[:2].tolist()
        )
        for table in (sums, weights):
            table[a] += table[b]
            table[:, a] += table[:, b]
        alive[b] = False
        mean[b], mean[:, b], least[b] = np.inf, np.inf, np.inf
        new = np.divide(sums[a], weights[a], out=np.full(count, np.inf), where=(weights[a] > 0) & alive)
        new[a] = np.inf
        mean[a], mean[:, a] = new, new
        # of equally near ones the lowest-numbered counts
        nearer = alive & ((new < least) | ((new == least) & (a < nearest)))
        nearest[nearer], least[nearer] = a, new[nearer]
        again = np.flatnonzero(alive & ~nearer & ((nearest == a) | (nearest == b)) | (np.arange(count) == a))
        nearest[again] = mean[again].argmin(axis=1)
        least[again] = mean[again, nearest[again]]
        merges.append((int(a), int(b)))
    return merges


def cut_into(merges: list[tuple[int, int]], clients: int, count: int) -> Labels:
    """The labels after all merges but the last `count` - 1, numbered by first appearance."""
    labels = np.arange(clients)
    for a, b in merges[: clients - count]:
        labels[labels == labels[b]] = labels[a]
    return numbered_by_size(labels)


def settled(found: ClassDistances, labels: Labels) -> Labels:
    """Everybody goes to the cluster whose other members are nearest on average, repeatedly until nobody moves.

    A client alone in a cluster stays, for others to come. A tree never undoes a merge; this corrects what it joined too
    early.
    """
    for _ in range(SETTLING):
        inside = np.eye(int(labels.max()) + 1)[labels]
        weight = found.weight @ inside
        mean = np.divide(
            (found.weight * found.distance) @ inside,
            weight,
            out=np.full_like(weight, np.inf),
            where=weight > 0,
        )
        stays = (inside.sum(axis=0)[labels] == 1) | ~np.isfinite(mean).any(axis=1)
        moved = np.where(stays, labels, mean.argmin(axis=1))
        if (moved == labels).all():
            break
        labels = moved
    return numbered_by_size(labels)


def numbered_by_size(labels: Labels) -> Labels:
    """The same clusters, numbered from 0 by first appearance."""
    order: dict[int, int] = {}
    return np.array([order.setdefault(int(label), len(order)) for label in labels], np.int64)


def without_small(found: ClassDistances, labels: Labels, least: int) -> Labels:
    """Clusters of fewer than `least` clients join the one that they are nearest to."""
    labels = labels.copy()
    while True:
        names, sizes = np.unique(labels, return_counts=True)
        if len(names) == 1 or sizes.min() >= least:
            return numbered_by_size(labels)
        small = names[sizes.argmin()]
        others = [name for name in names if name != small]
        far = {name: mean_distance(found, labels == small, labels == name) for name in others}
        # without a common class nothing is known: it joins the largest cluster
        known = [name for name in others if far[name][2] > 0]
        largest = max(others, key=lambda name: int((labels == name).sum()))
        labels[labels == small] = min(known, key=lambda name: far[name][0]) if known else largest


def renamed(
    labels: Labels, ids: tuple[int, ...], before: Mapping[int, int], first_free: int
) -> dict[int, int]:
    """The clusters under the names they had: each takes the old name that most of its members had, the largest first.

    A cluster that shares no member with an old one that is still free gets a new name, from `first_free` on.
    """
    names: dict[int, int] = {}
    taken: set[int] = set()
    for label in sorted(set(labels.tolist()), key=lambda a: (-int((labels == a).sum()), a)):
        old = [before[i] for i, b in zip(ids, labels.tolist(), strict=True) if b == label and i in before]
        votes = {name: old.count(name) for name in set(old) - taken}
        name = max(sorted(votes), key=lambda n: votes[n]) if votes else first_free
        first_free += not votes
        taken.add(name)
        names[label] = name
    return {i: names[label] for i, label in zip(ids, labels.tolist(), strict=True)}
