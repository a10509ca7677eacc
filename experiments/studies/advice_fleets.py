"""Fleets with known answers: how their labels, inputs, names of classes, labelling and sizes differ is drawn, and kept.

Design and test fleets come of streams of their own: nothing is chosen on the test fleets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from covey.arrays import Array
from covey.data import load
from covey.data.types import Federation
from covey.fleet.heterogeneity.class_geometry import Described, compare
from covey.fleet.heterogeneity.class_means import sketches
from covey.fleet.heterogeneity.measure import EXACT_SIZE, concept, shift
from covey.streams import stream
from experiments.studies.flux import Held, as_federation

POOLS = ("digits", "mnist", "fashion-mnist", "cifar10")
MOST = 6_000  # pictures of a pool
TEST = 60  # test samples of a client
MANY = 1e12  # samples: no chance left


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How the clients of a fleet differ."""

    pool: str
    clients: int
    sizes: tuple[int, int]
    alpha: float | None = None  # label shares of a Dirichlet distribution
    each: int | None = None  # or so many classes at each client
    groups: int = 1
    inputs: str = ""  # rotated, bright or dim: by group
    renamed: float = 0.0  # the share of classes that every other group calls otherwise
    noisy: float = 0.0  # the share of clients with random labels
    random: float = 0.0  # of theirs, how many

    def words(self) -> str:
        """In a few words."""
        labels = (
            f"Dirichlet {self.alpha:.2f}" if self.alpha else f"{self.each} classes" if self.each else "IID"
        )
        names = f"{self.renamed:.0%} renamed" if self.renamed else ""
        noise = f"{self.noisy:.0%} with {self.random:.0%} random labels" if self.noisy else ""
        extra = [word for word in (self.inputs, names, noise) if word]
        size = f"{self.clients} clients of {self.sizes[0]} to {self.sizes[1]}"
        return f"{self.pool}, {size}, {', '.join([labels, *extra])}"


@dataclass(frozen=True, eq=False)
class Generated:
    """A fleet, and what is true of it."""

    kind: Kind
    data: Federation
    shares: Array  # [clients, labels]: what the clients' labels were drawn from
    names: NDArray[np.int64]  # [clients, labels]: what each class is called there
    group: NDArray[np.int64]
    noisy: NDArray[np.bool_]


def draw_kind(rng: np.random.Generator) -> Kind:
    """One of many, simple ones more often."""
    small = int(rng.choice([40, 60, 100, 150]))
    labels = rng.choice(["iid", "dirichlet", "classes"], p=[0.4, 0.45, 0.15])
    inputs = str(rng.choice(["", "rotated", "bright", "dim"], p=[0.6, 0.2, 0.1, 0.1]))
    renamed = float(rng.choice([0.0, 0.4, 1.0], p=[0.75, 0.1, 0.15]))
    noisy = 0.3 if rng.random() < 0.2 else 0.0
    return Kind(
        pool=str(rng.choice(POOLS, p=[0.3, 0.3, 0.25, 0.15])),
        clients=int(rng.integers(8, 21)),
        sizes=(small, small * int(rng.choice([1, 1, 6]))),
        alpha=float(np.exp(rng.uniform(math.log(0.1), math.log(3)))) if labels == "dirichlet" else None,
        each=int(rng.integers(2, 5)) if labels == "classes" else None,
        groups=int(rng.integers(2, 5)) if inputs or renamed else 1,
        inputs=inputs,
        renamed=renamed,
        noisy=noisy,
        random=float(rng.uniform(0.4, 1.0)) if noisy else 0.0,
    )


@lru_cache(maxsize=4)
def pool(name: str) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """Pictures from 0 to 1, and their labels."""
    dataset = load(name)
    some = stream(0, "pool", name).permutation(len(dataset.y))[:MOST]
    x = dataset.x[torch.from_numpy(some)].float()
    return x / x.max(), dataset.labels()[some].astype(np.int64)


def looked(x: torch.Tensor, inputs: str, group: int) -> torch.Tensor:
    """The pictures as a group sees them."""
    if inputs == "rotated":
        return torch.rot90(x, group, (-2, -1))
    if inputs == "bright":
        return (x + 0.25 * group).clamp(0, 1)
    return x * (1 - 0.2 * group) if inputs == "dim" else x


def generate(number: int, purpose: str = "test") -> Generated:
    """The fleet of this number, for `design` or `test`."""
    rng = stream(number, "advice", purpose)
    kind = draw_kind(rng)
    x, y = pool(kind.pool)
    labels = int(y.max()) + 1
    of_class = [rng.permutation(np.flatnonzero(y == label)) for label in range(labels)]
    used = np.zeros(labels, dtype=np.int64)
    group = rng.permutation(np.arange(kind.clients) % kind.groups)
    called = [np.arange(labels), *(renaming(kind.renamed, labels, rng) for _ in range(kind.groups - 1))]
    noisy = np.zeros(kind.clients, dtype=bool)
    noisy[rng.choice(kind.clients, round(kind.noisy * kind.clients), replace=False)] = True
    held, shares = [], []
    for client in range(kind.clients):
        share = label_shares(kind, labels, rng)
        low, high = np.log(kind.sizes)
        size = round(math.exp(rng.uniform(low, high)))
        drawn = rng.choice(labels, size + TEST, p=share)
        places = []
        for label in drawn:
            places.append(of_class[label][used[label] % len(of_class[label])])
            used[label] += 1
        own = called[group[client]]
        told = own[drawn]
        if noisy[client]:  # test labels are right: what is to be learned
            hit = (rng.random(len(told)) < kind.random) & (np.arange(len(told)) < size)
            told = np.where(hit, rng.integers(0, labels, len(told)), told)
        there = np.zeros(labels)
        there[own] = share
        random = kind.random if noisy[client] else 0.0
        shares.append((1 - random) * there + random / labels)
        seen = looked(x[torch.from_numpy(np.array(places))], kind.inputs, int(group[client]))
        held.append(Held(seen, told.astype(np.int64), size, int(group[client])))
    names = np.stack([called[g] for g in group])
    return Generated(kind, as_federation(load(kind.pool), held), np.stack(shares), names, group, noisy)


def label_shares(kind: Kind, labels: int, rng: np.random.Generator) -> Array:
    """What a client's labels are drawn from."""
    if kind.alpha is not None:
        return rng.dirichlet([kind.alpha] * labels)
    share = np.zeros(labels)
    share[rng.choice(labels, kind.each or labels, replace=False)] = 1 / (kind.each or labels)
    return share


def renaming(part: float, labels: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """This part of the classes, drawn at random, each called as the next of them."""
    names = np.arange(labels)
    some = rng.choice(labels, round(part * labels), replace=False)
    names[some] = np.roll(some, 1)
    return names


# ---------------------------------------------------------------------------------------------- what is true


def true_skew(shares: Array) -> float:
    """F_ST of the distributions that labels were drawn from."""
    alike = shares @ shares.T
    n = len(shares)
    across = (alike.sum() - np.trace(alike)) / (n * (n - 1))
    return float(1 - (1 - np.trace(alike) / n) / (1 - across)) if across < 1 else 0.0


@lru_cache(maxsize=128)
def class_means_of(name: str, inputs: str, group: int) -> Array:
    """Of the whole pool, as a group sees it: the mean description of each class."""
    x, y = pool(name)
    described = sketches(looked(x, inputs, group).numpy(), EXACT_SIZE)
    return np.stack([described[y == label].mean(axis=0) for label in range(int(y.max()) + 1)])


def true_shifts(fleet: Generated, held: list[NDArray[np.int64]]) -> tuple[float, float, float]:
    """Feature shift by names, feature shift with every class under its true name, concept shift; nan if nobody shares.

    Of the clients whose labels are not random, over the classes (by name) that each has `held`.
    """
    clients = np.flatnonzero(~fleet.noisy)

    def of(names: bool, inputs: bool) -> list[Described]:
        found = []
        for client in clients:
            means = class_means_of(
                fleet.kind.pool, fleet.kind.inputs if inputs else "", int(fleet.group[client])
            )
            true = np.argsort(fleet.names[client])  # which class bears each name
            own = held[client] if names else np.sort(true[held[client]])
            chosen = means[true[own]] if names else means[own]
            many = np.full((3, len(own)), MANY)
            found.append(Described(own, np.stack([chosen] * 3), many, np.zeros(3), 0.0))
        return found

    named, right, unmoved = (compare(of(*how)) for how in ((True, True), (False, True), (True, False)))
    if not len(named.k) or not len(right.k):
        return math.nan, math.nan, math.nan
    return (
        shift(named, named.same, None),
        shift(right, right.same, None),
        concept(unmoved, unmoved.length, None),
    )
