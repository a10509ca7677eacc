"""What the numbers of heterogeneity are called, which values are high, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.core import Client, Fleet, Reply, Step, Task, stream
from covey.errors import RunError, UserError
from covey.parts.heterogeneity_words import level_of
from covey.parts.steps.class_means import SENSITIVITY, ClassMeans, class_table, sketches
from covey.parts.steps.privacy import Privacy

MOST_PAIRS = 2000  # of clients that are compared; more do not change a mean
EXACT_SIZE, NOISY_SIZE = 32, 8  # numbers that describe a sample
# the standard error, as a share of the distance between classes, up to which a shift can be seen
VISIBLE = 0.15
FEWEST = 3  # samples of a class from which its mean is worth comparing
MOST_TIMED = 10_000  # devices of a simulated fleet that are compared
MOST_CLIENTS, MOST_SAMPLES = 50, 200  # of a simulated fleet that its report looks at, of each client


@dataclass(frozen=True, kw_only=True)
class Heterogeneity:
    """The five numbers; see the module for what each means."""

    label_skew: float
    feature_shift: float
    concept_shift: float
    size_skew: float
    device_spread: float

    def numbers(self) -> dict[str, float]:
        """By name, in order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def level(self, name: str) -> str:
        """low, middle or high; hidden where the noise is larger than what there is to see."""
        return level_of(name, getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class UnitOfWork(Step):
    """Never asked: a step of the same work for every client, to compare devices and not the sizes of their data."""

    kind: ClassVar[str] = "train.unit"

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        raise RunError("a unit of work is only timed")

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        return 1000.0  # samples


def measure_heterogeneity(fleet: Fleet, *, privacy: Privacy | None = None) -> Heterogeneity:
    """Asks all clients that can be reached once, and puts their answers together."""
    if not fleet.objective.main == "accuracy":
        raise UserError(
            "how heterogeneous clients are is measured class by class; this objective has no classes"
        )
    here = fleet.begin(1)
    privacy = privacy or Privacy()
    # Noise grows with every number that is told: fewer of them say more.
    step = ClassMeans(privacy=privacy, size=EXACT_SIZE if privacy.epsilon is None else NOISY_SIZE)
    replies = fleet.ask(step, dict.fromkeys(here, Task()))
    if len(replies) < 2:
        raise UserError(f"{len(replies)} clients answered; at least 2 are needed to compare them")
    tables = np.stack([np.asarray(reply.stats["table"], dtype=np.float64) for reply in replies])
    seconds = fleet.seconds(UnitOfWork(), [reply.id for reply in replies])
    return heterogeneity(tables, list(seconds.values()), noise=noise_variance(step.privacy))


def of_simulation(fleet: Fleet) -> dict[str, float]:
    """The numbers of a simulated fleet, at no cost to its clients; without classes, those of sizes and devices alone.

    Of a large fleet, shift and conflict are those of some clients and their first samples, and devices of some.
    """
    data = fleet.data
    if data is None or not data.shares:
        return {}
    timed = evenly(len(data.shares), MOST_TIMED)
    seconds = np.array(list(fleet.seconds(UnitOfWork(), timed.tolist()).values()))
    sizes = data.sizes()[:, 0].astype(np.float64)
    found = {"size_skew": gini(sizes), "device_spread": spread(seconds)}
    if not data.dataset.classes or len(data.shares) < 2:
        return found
    counts = data.label_counts().astype(np.float64)
    some = evenly(len(data.shares), MOST_CLIENTS)
    tables = []
    for client in some.tolist():
        x, y = data.shares[client].train.select(slice(MOST_SAMPLES)).tensors()
        held = np.bincount(y.numpy().astype(np.int64), minlength=counts.shape[1]).astype(np.float64)
        tables.append(class_table(sketches(x.numpy(), EXACT_SIZE), y.numpy(), held))
    shift, conflict = shift_and_conflict(np.stack(tables))
    return {
        "label_skew": label_skew(counts),
        "feature_shift": shift,
        "concept_shift": conflict,
        **found,
    }


def evenly(clients: int, most: int) -> NDArray[np.int64]:
    """Up to so many clients, evenly spaced."""
    return np.unique(np.linspace(0, clients - 1, most).astype(np.int64))


def noise_variance(privacy: Privacy) -> float:
    """Of every number in a client's table: Laplace noise of scale b has the variance 2 b^2."""
    return 2 * (SENSITIVITY / privacy.epsilon) ** 2 if privacy.epsilon is not None else 0.0


def heterogeneity(tables: Array, seconds: Sequence[float], *, noise: float = 0.0) -> Heterogeneity:
    """The five numbers from the clients' tables [clients, labels, 1 + size + 1] (see `ClassMeans`)."""
    counts = np.maximum(tables[:, :, 0], 0.0)
    shift, conflict = shift_and_conflict(tables, noise)
    return Heterogeneity(
        label_skew=label_skew(counts, noise),
        feature_shift=shift,
        concept_shift=conflict,
        size_skew=gini(counts.sum(axis=1)),
        device_spread=spread(np.asarray(seconds)),
    )


def label_skew(counts: Array, noise: float = 0.0) -> float:
    """Mean over clients of the total variation between their label shares and everybody's, less what chance explains.

    A share p estimated from n samples misses by sqrt(2 / pi) sqrt(p (1 - p) / n + noise / n^2) on average.
    """
    sizes = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    whole = counts.sum(axis=0) / max(counts.sum(), 1.0)
    distance = 0.5 * np.abs(counts / sizes - whole).sum(axis=1)
    deviation = np.sqrt(whole * (1 - whole) / sizes + noise / sizes**2)
    chance = 0.5 * np.sqrt(2 / np.pi) * deviation.sum(axis=1)
    return float(max(0.0, np.mean(distance - chance)))


def gini(sizes: Array) -> float:
    """0 when all are equal, towards 1 when one has everything."""
    ordered = np.sort(sizes)
    n, total = len(ordered), ordered.sum()
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * total)) if total > 0 else 0.0


def spread(seconds: Array) -> float:
    """How much longer the slowest tenth takes than the median device, as a share of the median."""
    if not len(seconds):
        return 0.0
    median = float(np.median(seconds))
    return max(0.0, float(np.quantile(seconds, 0.9)) / median - 1) if median > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Described:
    """A client's classes: their means, and how much each mean is uncertain (variance, summed over its numbers)."""

    classes: NDArray[np.int64]
    means: Array
    uncertain: Array


def described(table: Array, noise: float) -> Described:
    """The classes of which a client has enough samples (under noise: more than the noise could make up)."""
    size = table.shape[1] - 2
    n = table[:, 0]
    classes = np.flatnonzero(n >= max(FEWEST, 3 * np.sqrt(noise)))
    n = n[classes, None]
    means = table[classes, 1:-1] / n
    within = np.maximum(table[classes, -1] / (size * n[:, 0]) - (means**2).sum(axis=1), 0.0)
    uncertain = within / np.maximum(n[:, 0] - 1, 1) + size * noise / n[:, 0] ** 2
    return Described(classes.astype(np.int64), means, uncertain)


def shift_and_conflict(tables: Array, noise: float = 0.0) -> tuple[float, float]:
    """Mean over pairs of clients, as shares of the squared distance between two classes of one client.

    With D_ab the squared distance of one client's class a from the other's class b (less what chance explains), over
    the classes that both hold: B, the mean of D under the assignment of classes that makes it smallest, is what no
    renaming explains, the feature shift; the mean of D_aa less B is what renaming explains, the concept shift.
    The assignment is chosen on one half of the numbers and D measured on the other, so that noise cannot pass for it.
    """
    clients = [described(table, noise) for table in tables]
    apart = float(np.mean([gap for client in clients for gap in between_classes(client)] or [0.0]))
    found = [(i, *compared(clients[i], clients[j])) for i, j in pairs(len(clients))]
    found = [(i, same, best) for i, same, best in found if not np.isnan(same)]
    if not found or apart <= 0:
        return (0.0, 0.0) if noise == 0 else (np.nan, np.nan)
    who, same, best = (np.array(column) for column in zip(*found, strict=True))
    by_client = [same[who == i].mean() for i in np.unique(who)]
    if noise and np.std(by_client) / np.sqrt(len(by_client)) > VISIBLE * apart:
        return np.nan, np.nan
    left = min(float(same.mean()), float(best.mean()))
    return max(0.0, left / apart), max(0.0, (float(same.mean()) - left) / apart)


def compared(one: Described, other: Described) -> tuple[float, float]:
    """The mean of D_aa, and of D under the best assignment; nan where they share fewer than two classes."""
    _, mine, theirs = np.intersect1d(one.classes, other.classes, assume_unique=True, return_indices=True)
    if len(mine) < 2:
        return np.nan, np.nan
    gaps = one.means[mine][:, None] - other.means[theirs][None]
    # of one half of the numbers
    chance = 0.5 * (one.uncertain[mine][:, None] + other.uncertain[theirs][None])
    halves = [(gaps[:, :, half::2] ** 2).sum(axis=2) - chance for half in (0, 1)]
    same = sum(float(np.trace(half)) for half in halves) / len(mine)
    best = sum(
        float(measured[np.arange(len(mine)), assignment(chosen)].mean())
        for chosen, measured in (halves, reversed(halves))
    )
    return same, best


def assignment(costs: Array) -> NDArray[np.intp]:
    """Which column each row takes, no two the same, so that the sum of the costs is smallest."""
    # what every column costs at least, taken away from all its entries, changes no choice: where the smallest of what
    # is left lie in different columns, they are the best
    for left in (costs, costs - costs.min(axis=0)):
        least: NDArray[np.intp] = left.argmin(axis=1)
        if len(set(least.tolist())) == len(least):
            return least
    # not scipy.optimize, whose import would be a tenth of a run's start; an entry of 0 would count as no edge
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    return min_weight_full_bipartite_matching(csr_array(costs - costs.min() + 1))[1].astype(np.intp)


def between_classes(client: Described) -> list[float]:
    """Squared distances between each two classes of a client, less what chance explains."""
    if len(client.classes) < 2:
        return []
    first, second = np.triu_indices(len(client.classes), 1)
    gaps = ((client.means[first] - client.means[second]) ** 2).sum(axis=1)
    return list(gaps - client.uncertain[first] - client.uncertain[second])


def pairs(clients: int) -> list[tuple[int, int]]:
    """All pairs of clients, or some drawn at random where they are many."""
    if clients * (clients - 1) // 2 <= MOST_PAIRS:
        return [(i, j) for i in range(clients) for j in range(i)]
    drawn = stream(0, "pairs", clients).integers(0, clients, (2 * MOST_PAIRS, 2))
    return [(int(i), int(j)) for i, j in drawn if i != j][:MOST_PAIRS]
