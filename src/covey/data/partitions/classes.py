"""Clients that hold few classes, or the same ones in groups."""

from typing import Literal

import numpy as np

from covey.data.ground_truth import numbered
from covey.data.partitions.cutting import (
    DealtOut,
    Parts,
    check_between,
    check_enough,
    check_nobody_empty,
    counts_of,
    deal,
    equal_sizes,
)
from covey.data.types import Indices
from covey.errors import UserError
from covey.settings.ranges import Count
from covey.settings.registry import register

# The ten pairs of the HACCS paper's Figure 1: each label is in exactly two of them.
HACCS_PAIRS = ((6, 7), (1, 4), (5, 9), (2, 3), (0, 4), (2, 5), (6, 8), (0, 9), (7, 8), (1, 3))


@register("partition", "shards")
def shards(labels: Indices, *, clients: Count, rng: np.random.Generator, per_client: Count = 2) -> Parts:
    """Sort by label, cut clients x per_client equal shards, give every client that many at random.

    A client gets about `per_client` labels. When the shards cannot be exactly equal the first are one sample
    larger, so that all data are used.

    Args:
        per_client: shards of a client.
    """
    check_enough(samples=len(labels), clients=clients, minimum=per_client)
    shuffled = rng.permutation(len(labels))
    ordered = shuffled[np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(ordered, clients * per_client)
    hands = rng.permutation(clients * per_client).reshape(clients, per_client)
    return [rng.permutation(np.concatenate([pieces[shard] for shard in hand])) for hand in hands]


@register("partition", "two-label-groups")
def two_label_groups(
    labels: Indices,
    *,
    clients: Count,
    rng: np.random.Generator,
    pairs: Literal["next", "haccs", "published"] = "next",
) -> Parts:
    """One group of clients per class l, all with equal parts of the classes l and l + 1 mod C.

    The topologies paper: 10 groups of 5 clients for 10 classes; clients 5l to 5l + 4 are group l. Each class
    is cut into as many equal parts as clients use it; the remainder stays unused. `pairs = "haccs"`: the ten
    pairs of the HACCS paper's Figure 1. `pairs = "published"`: as the topologies paper's code really does,
    both classes of group l are l, so that each client has one class.

    Args:
        pairs: next takes classes l and l + 1; haccs, published: as those papers do.
    """
    check_enough(samples=len(labels), clients=clients)
    totals = counts_of(labels)
    table = _pair_table(pairs, len(totals))
    if clients % len(table):
        raise UserError(f"clients is {clients}; allowed: multiples of the {len(table)} groups")
    uses = np.zeros((len(table), len(totals)), dtype=np.int64)
    for group, pair in enumerate(table):
        for label in pair:
            uses[group, label] += 1
    per_group = clients // len(table)
    parts = totals // np.maximum(uses.sum(axis=0) * per_group, 1)
    counts = np.repeat(uses * parts, per_group, axis=0)
    check_nobody_empty(counts)
    return DealtOut(deal(labels, counts, rng), truth=numbered(counts > 0))


@register("partition", "random-classes")
def random_classes(
    labels: Indices, *, clients: Count, rng: np.random.Generator, most_classes: Count | None = None
) -> Parts:
    """Client i wants m_i ~ uniform 1..most_classes classes and gets one even part of each.

    CAFA's default (P0). sum(m_i) parts are dealt to the classes at random, at least one each; clients in
    order take one part of each of the m_i classes that have most parts left. `most_classes` is C - 1 by
    default. All data are used: where the random numbers leave parts that nobody can take, the class is cut
    into the parts that were taken (only with fewer parts than classes some classes stay unused).

    Args:
        most_classes: of a client; none is all but one.
    """
    check_enough(samples=len(labels), clients=clients)
    totals = counts_of(labels)
    present = np.flatnonzero(totals)
    most = max(len(present) - 1, 1) if most_classes is None else most_classes
    check_between("most_classes", most, 1, len(present), "the number of classes")
    wishes = rng.integers(1, most, endpoint=True, size=clients)
    left = _parts_per_class(int(wishes.sum()), len(present), rng)
    takes = np.zeros((clients, len(present)), dtype=bool)
    for client, wish in enumerate(wishes):
        chosen = np.argsort(-left, kind="stable")[:wish]
        chosen = chosen[left[chosen] > 0]
        takes[client, chosen] = True
        left[chosen] -= 1
    counts = np.zeros((clients, len(totals)), dtype=np.int64)
    for label, takers in zip(present, takes.T, strict=True):
        if takers.any():
            counts[takers, label] = equal_sizes(int(totals[label]), int(takers.sum()))
    check_nobody_empty(counts)
    return deal(labels, counts, rng)


@register("partition", "few-classes")
def few_classes(
    labels: Indices,
    *,
    clients: Count,
    rng: np.random.Generator,
    fewest_classes: Count = 2,
    most_classes: Count = 4,
) -> Parts:
    """Random sizes; each client takes size / M samples of classes c, c + 1, ... from a random class c on.

    CAFA's most extreme split (P2): sizes in proportion to random integers 10..100, M uniform in
    fewest_classes..most_classes for each client, classes in a circle until the size is reached. Used-up
    classes are skipped, so late clients may have more classes. No sample twice.

    Args:
        fewest_classes: of a client.
        most_classes: of a client.
    """
    check_enough(samples=len(labels), clients=clients)
    left = counts_of(labels)
    check_between("most_classes", most_classes, 1, int((left > 0).sum()), "the number of classes")
    check_between("fewest_classes", fewest_classes, 1, most_classes, "most_classes")
    weights = rng.integers(10, 100, endpoint=True, size=clients)
    sizes = weights * len(labels) // weights.sum()
    spread = rng.integers(fewest_classes, most_classes, endpoint=True, size=clients)
    starts = rng.integers(len(left), size=clients)
    counts = np.zeros((clients, len(left)), dtype=np.int64)
    for client, size in enumerate(sizes.tolist()):
        step = -(-size // int(spread[client]))
        label = int(starts[client])
        while size > 0:
            taken = min(step, size, int(left[label]))
            counts[client, label] += taken
            left[label] -= taken
            size -= taken
            label = (label + 1) % len(left)
    check_nobody_empty(counts)
    return deal(labels, counts, rng)


def _pair_table(pairs: str, classes: int) -> tuple[tuple[int, int], ...]:
    if pairs == "next" and classes > 1:
        return tuple((label, (label + 1) % classes) for label in range(classes))
    if pairs == "haccs" and classes == 10:
        return HACCS_PAIRS
    if pairs == "published":
        return tuple((label, label) for label in range(classes))
    needs = {"next": "at least 2 classes", "haccs": "exactly 10 classes"}
    raise UserError(f"pairs is {pairs!r}, which needs {needs[pairs]}; the data have {classes}")


def _parts_per_class(parts: int, classes: int, rng: np.random.Generator) -> Indices:
    """Deal parts to classes at random, each at least one as far as they go."""
    first = np.zeros(classes, dtype=np.int64)
    first[rng.permutation(classes)[:parts]] = 1
    return first + rng.multinomial(parts - first.sum(), np.full(classes, 1 / classes))
