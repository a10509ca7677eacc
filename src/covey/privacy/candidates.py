"""Clusters of devices of which no description is ever seen: prototypes from noisy sums of what clients choose at home.

    t_k = T_k / |T_k|                              a client's class table (see `sketch`), of length 1
    client k chooses a prototype at home           the one that its own classes are nearest to
    S_j = sum of t_k over who chose j + N(0, z^2)  all rows j together are one Gaussian mechanism: a client is in one
    prototype j <- class sums of S_j / counts of S_j

That is private k-means (Blum et al., 2005) on tables. It begins with one prototype, everybody's mean, and each is split
in two again and again; a half that hardly anybody chose is dropped. At the end prototypes are merged that do not stand
apart: their distance is known up to noise whose size is known. One cluster is a valid answer, and it is the answer
where there is too much noise to see any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch

from covey.arrays import Array, Labels
from covey.core import Client, Facts, Key, Known, Reply, Round, Shows, Stat, Step, Task, step
from covey.core.privacy_loss import Loss, What
from covey.core.shows import NOTHING
from covey.data.types import Dataset, mark_of
from covey.errors import SilentRoundError
from covey.parts.portraits.arrangement import joined_clusters
from covey.parts.portraits.clusters import APART, SIGMAS
from covey.parts.portraits.portrait import REMEMBERED, Portrait, classes_in, classes_of, standardised
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.gaussian_noise import gaussian
from covey.privacy.accountant import Sampling, Sums
from covey.privacy.plan import book_sums
from covey.privacy.secure import FEWEST_IN_SUM, SecureSums, SpoiledSumError
from covey.privacy.secure_steps import SecureUpdate
from covey.privacy.sketch import COUNTED_AS, THINNED, class_table
from covey.settings import Count, Positive, validated

DIMS = 32  # numbers that a sample is projected to; noise grows with their root
SPLITS, SETTLING = 3, 2  # how often all prototypes are split, and sums after each split
NUDGE = 0.1  # how far the halves of a prototype are from it, in lengths of a sample
LEAST = 0.03  # of all samples: a prototype with fewer is dropped, or one whose count may be noise
CERTAIN = 3.0  # standard deviations that a class's count must have for its mean to be used

_TABLES: WeakKeyDictionary[Dataset, dict[Hashable, Array]] = WeakKeyDictionary()

CANDIDATES: Key[dict[str, Any]] = Key("prototypes of clusters", "add a group part that finds them")


@step(kind="query.candidate", of_labels=True)
class AddSketch(Step):
    """The client's class table, of length 1, for the prototype that it chooses at home; without any, for all.

    Args:
        dims: numbers that every sample is projected to.
    """

    dims: Count = DIMS

    told_as: ClassVar[What] = "embeddings"

    def __call__(self, client: Client, task: Task) -> Reply:
        table = candidate_table(client, self.dims)
        chosen = nearest(table, np.asarray(task.args["prototypes"])) if "prototypes" in task.args else 0
        length = float(np.linalg.norm(table))
        return Reply(id=client.id, slot=chosen, size=1, stats={"table": table / length if length else table})

    def added(self, reply: Reply) -> torch.Tensor:
        """What a secure sum adds up."""
        return torch.from_numpy(np.asarray(reply.stats["table"]).ravel())

    def expects(self, known: Known) -> dict[str, Stat]:
        return {"table": Stat(low=-1.0, high=1.0, shape=(classes_of(known.classes), None))}

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        return 0.1 * FORWARD_SHARE * train


def candidate_table(client: Client, dims: int = DIMS) -> Array:
    """Sums of the client's samples class by class, and their counts; worked out once, while the data stay."""
    data, mark = mark_of(client.train)
    known, key = _TABLES.setdefault(data, {}), (dims, mark)
    if key not in known:
        classes = classes_of(len(data.classes))
        found = class_table(standardised(client), classes_in(client.train), classes, dims)
        if len(known) >= REMEMBERED:
            return found
        known[key] = found
    return known[key]


def nearest(table: Array, prototypes: Array) -> int:
    """The prototype [k, classes, d] with the least sum over samples of squared distances from its class's mean."""
    counts = table[:, -1] / COUNTED_AS
    far = (prototypes**2).sum(axis=2) @ counts - 2 * np.einsum("cd,kcd->k", table[:, :-1], prototypes)
    return int(far.argmin())


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyTables:
    """Sums of tables [k, classes, d + 1] with noise of a known size; `merged`: of how many sums each was made."""

    sums: Array
    noise: float
    merged: Array

    @classmethod
    def of(cls, sums: Array, noise: float) -> Self:
        return cls(sums=sums, noise=noise, merged=np.ones(len(sums)))

    @property
    def counts(self) -> Array:
        """Samples of each class, 0 where that may be noise."""
        counts = self.sums[:, :, -1] / COUNTED_AS
        floor = CERTAIN * self.noise * np.sqrt(self.merged) / COUNTED_AS
        return np.where(counts > np.maximum(floor, 1e-9)[:, None], counts, 0.0)

    def means(self, otherwise: Array) -> Array:
        """The mean of each class; `otherwise` where hardly anybody has it."""
        counts = self.counts[:, :, None]
        found = np.divide(
            self.sums[:, :, :-1], counts, out=np.zeros_like(self.sums[:, :, :-1]), where=counts > 0
        )
        return np.where(counts > 0, found, otherwise)

    def variances(self) -> Array:
        """Of each number of a class mean, by the noise of sum and count; infinite where the class is not there.

        (z / n)^2 (1 + |m|^2 / (d a^2)), a what a sample counts as: a count that is wrong makes the whole mean longer.
        """
        counts, means = self.counts, self.means(np.zeros(()))
        spread = self.noise * np.sqrt(self.merged)[:, None]
        longer = (means**2).mean(axis=2) / COUNTED_AS**2
        found = np.divide(spread, counts, out=np.full_like(counts, np.inf), where=counts > 0)
        return np.asarray(found**2 * (1 + longer))

    def kept(self, which: Array) -> NoisyTables:
        return NoisyTables(sums=self.sums[which], noise=self.noise, merged=self.merged[which])

    def large(self, total: float) -> Array:
        """Which have more than a few of all samples, by more than noise."""
        samples = self.sums[:, :, -1].sum(axis=1) / COUNTED_AS
        by_noise = SIGMAS * self.noise * math.sqrt(self.sums.shape[1]) / COUNTED_AS
        return np.asarray(samples > max(LEAST * total, by_noise))

    def joint(self, labels: Labels) -> NoisyTables:
        """The sums of each label's tables."""
        names = range(int(labels.max(initial=0)) + 1)
        return NoisyTables(
            sums=np.stack([self.sums[labels == name].sum(axis=0) for name in names]),
            noise=self.noise,
            merged=np.array([self.merged[labels == name].sum() for name in names]),
        )


def distances(tables: NoisyTables) -> tuple[Array, Array]:
    """Mean squared distance of two prototypes' classes, without the noise's part, and its standard error by noise.

    sum of (|p_ic - p_jc|^2 / s_c - d) / sum of 1 / s_c, s_c the variance of a number of that difference: under noise
    alone the numerator is chi-squared minus its mean, of variance 2 d for each class.
    """
    means, variances = tables.means(np.zeros(())), tables.variances()
    count, dims = len(means), means.shape[2]
    far, error = np.full((count, count), np.inf), np.zeros((count, count))
    for a in range(count):
        for b in range(a):
            spread = np.maximum(variances[a] + variances[b], 1e-12)
            both = np.isfinite(spread)
            weight = float((1 / spread[both]).sum())
            if not weight:  # none in common is apart; of a prototype without any class nothing is known
                known = np.isfinite(variances[[a, b]]).any(axis=1).all()
                far[a, b] = far[b, a] = math.inf if known else -math.inf
                continue
            squares = ((means[a, both] - means[b, both]) ** 2).sum(axis=1)
            far[a, b] = far[b, a] = float((squares / spread[both] - dims).sum()) / weight
            error[a, b] = error[b, a] = math.sqrt(2 * dims * both.sum()) / weight
    return far, error


def between_classes(whole: NoisyTables) -> float:
    """The mean squared distance of two classes of everybody's mean, without the noise's part; 1 where none can be
    told."""
    means, variances = whole.means(np.zeros(()))[0], whole.variances()[0]
    there = np.flatnonzero(np.isfinite(variances))
    pairs = [
        ((means[a] - means[b]) ** 2).sum() - means.shape[1] * (variances[a] + variances[b])
        for a in there
        for b in there
        if b < a
    ]
    unit = float(np.mean(pairs)) if pairs else 0.0
    return unit if unit > 0 else 1.0


def standing_apart(tables: NoisyTables, unit: float) -> Labels:
    """The prototypes, merged from the nearest on until any two stand apart: by APART units and SIGMAS errors."""
    labels = np.arange(len(tables.sums))
    while True:
        joint = tables.joint(labels)
        far, error = distances(joint)
        excess = far - np.maximum(APART * unit, SIGMAS * error)
        if len(far) < 2 or excess.min() > 0:
            return labels
        a, b = sorted(int(i) for i in np.unravel_index(excess.argmin(), excess.shape))
        labels = np.where(labels == b, a, labels)
        labels = np.where(labels > b, labels - 1, labels)


def alike(tables: NoisyTables, rng: np.random.Generator) -> Labels:
    """The model of each prototype: those that look different while their classes lie alike share one."""
    means, variances = tables.means(np.zeros(())), tables.variances()
    there = np.isfinite(variances)
    scale = np.sqrt(np.where(there, variances, 0.0))[:, :, None, None]
    apart = scale * rng.standard_normal((*means.shape[:2], THINNED, means.shape[2]))
    pair = np.stack([means[:, :, None] + apart, means[:, :, None] - apart], axis=1) / math.sqrt(THINNED)
    halves = pair.reshape(len(means), 2, means.shape[1], -1)
    counts = np.where(there, np.maximum(tables.counts, 2.0), 0.0)
    views = [Portrait(counts=n, halves=h, enough=math.inf) for n, h in zip(counts, halves, strict=True)]
    return joined_clusters([views], np.arange(len(views))).labels


CandidateAnswer = Callable[
    [Array | None], Array
]  # the noisy sums for these prototypes; without any, the one of everybody


def found_by(
    told: CandidateAnswer, noise: float, splits: int, rng: np.random.Generator
) -> tuple[Array, Labels]:
    """Prototypes, and the model of each, from as many noisy sums as `sums_for` says."""
    whole = NoisyTables.of(told(None), noise)
    everybody, total = whole.means(np.zeros(()))[0], float(whole.counts.sum())
    tables, prototypes = whole, everybody[None]
    for _ in range(splits):
        aside = rng.standard_normal(prototypes.shape)
        aside *= NUDGE / np.linalg.norm(aside, axis=2, keepdims=True)
        prototypes = np.concatenate([prototypes + aside, prototypes - aside])
        for _ in range(SETTLING):
            tables = NoisyTables.of(told(prototypes), noise)
            large = tables.large(total)
            tables = tables.kept(large) if large.any() else whole
            prototypes = tables.means(everybody)
    labels = standing_apart(tables, between_classes(whole))
    tables = tables.joint(labels)
    return tables.means(everybody), alike(tables, rng)


def sums_for(splits: int) -> int:
    """How many noisy sums are told."""
    return 1 + SETTLING * splits


@validated
class Prototypes:
    """Before the first round clients choose among prototypes at home and add their tables to noisy sums; no groups.

    Args:
        noise: of one sum that would cost as much as all of these, in lengths of a table.
        splits: how often prototypes are split in two; 0 is one cluster, for which nobody tells anything.
        join: whether clusters that look different while their classes lie alike share a model.
        secure: how sums are made where the server may see nobody's table.
    """

    noise: Positive
    splits: int = SPLITS
    join: bool = True
    secure: SecureSums | None = None

    gives: ClassVar[Facts] = (CANDIDATES,)
    shows: ClassVar[Shows] = NOTHING

    @property
    def planned(self) -> Sums | None:
        """What finding the prototypes costs everybody who is there."""
        times = sums_for(self.splits)
        if not self.splits:
            return None
        return Sums(noise=self.noise * math.sqrt(times), sampling=Sampling(), times=times)

    def __call__(self, now: Round) -> dict[int, int]:
        if CANDIDATES.name in now.memory:
            return {}
        if self.planned is None:
            CANDIDATES.keep(now.memory, {"prototypes": np.zeros((1, 1, 1)), "models": [0]})
            return {}
        noise, rng = self.planned.noise, now.stream("prototypes")
        told = SketchSums(now=now, noise=noise, secure=self.secure)
        prototypes, models = found_by(told, noise, self.splits, rng)
        if not self.join:
            models = np.arange(len(prototypes))
        CANDIDATES.keep(now.memory, {"prototypes": prototypes, "models": models.tolist()})
        now.notes["clusters"] = {"text": in_words(models, self.planned)}
        return {}


@dataclass(kw_only=True)
class SketchSums:
    """Asks everybody who is here for one noisy sum after the other, and books each."""

    now: Round
    noise: float
    secure: SecureSums | None = None
    number: int = 0

    def __call__(self, prototypes: Array | None) -> Array:
        now, self.number = self.now, self.number + 1
        tasks = dict.fromkeys(now.here, Task(args={} if prototypes is None else {"prototypes": prototypes}))
        rows = 1 if prototypes is None else len(prototypes)
        sums, has_noise = self.seen(tasks, rows) if self.secure is None else self.unseen(tasks, rows)
        if not has_noise:
            rng = now.stream("prototypes", "noise", self.number) if now.fleet.simulated else None
            sums = gaussian(torch.from_numpy(sums.ravel()), self.noise, rng).numpy().reshape(sums.shape)
        tries = now.fleet.ledger.tries
        book_sums(now.memory, Sums(noise=self.noise, sampling=Sampling(), times=tries))
        # whom a lost try asked is not known
        could = now.here if tries == 1 else sorted({*now.here, *now.fleet.members(), *now.seen})
        for client in could:
            now.fleet.ledger.lose(client, Loss(what="embeddings", mechanism="sum", noise=self.noise))
        return np.asarray(sums)

    def seen(self, tasks: Mapping[int, Task], rows: int) -> tuple[Array, bool]:
        """Tables that the server adds up itself."""
        replies = self.now.fleet.ask(AddSketch(), tasks)
        if not replies:
            raise SilentRoundError(f"round {self.now.number}: nobody described its classes")
        shapes = [np.shape(reply.stats["table"]) for reply in replies]
        usual = max(set(shapes), key=shapes.count)
        sums = np.zeros((rows, *usual))
        for reply in replies:
            table = np.asarray(reply.stats["table"], np.float64)
            if table.shape == usual and 0 <= reply.slot < rows:
                sums[reply.slot] += table / max(1.0, float(np.linalg.norm(table)))
        return sums, False

    def unseen(self, tasks: Mapping[int, Task], rows: int) -> tuple[Array, bool]:
        """Tables of which the server sees the sum alone, and whether the clients' noise is in it."""
        assert self.secure is not None
        why = f"fewer than {FEWEST_IN_SUM} clients, or too few of them, stayed to the end of it"
        try:
            found = self.secure(
                self.now, SecureUpdate(step=AddSketch(), clip=1.0, rows=rows), tasks, self.noise
            )
        except SpoiledSumError as error:
            found, why = None, str(error)
        if found is None:
            raise SilentRoundError(f"round {self.now.number}: no secure sum of class tables was made: {why}")
        classes = classes_of(self.now.fleet.known(found.there[0]).classes)
        return found.values.numpy().reshape(rows, classes, -1), found.has_noise


def in_words(models: Labels, cost: Sums) -> str:
    """The decision for the report."""
    told = f"{cost.times} sums of everybody's class tables, each under noise of {cost.noise:.3g} tables, show"
    several = int(models.max(initial=0)) + 1
    if several > 1:
        return f"{told} {several} clusters that stand apart: each has a model, and clients choose theirs at home."
    return f"{told} no clusters that need models of their own: one model for everybody."
