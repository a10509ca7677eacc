"""How heterogeneous clients are: six numbers, each with its 95 % interval, all but the last shares from 0 to 1.

Standard errors are those of the jackknife over clients: how much a number moves when a client is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from covey.arrays import Array
from covey.core import Client, Fleet, Reply, Step, Task, stream
from covey.errors import RunError, UserError
from covey.fleet.heterogeneity.class_geometry import (
    Described,
    Pairs,
    beside_others,
    compare,
    described,
    told_by_labels,
)
from covey.fleet.heterogeneity.class_means import SENSITIVITY, ClassMeans, sketches, table_of_classes
from covey.parts.steps.privacy import Privacy
from covey.training.models.encoders import as_numbers

EXACT_SIZE, NOISY_SIZE = 32, 8  # numbers that describe a sample
CONFIDENCE = 0.95
WIDEST = 0.6  # an interval that is wider than that says nothing
AGREE = 0.2  # of the classes' differences, what two clients may not share and still agree on their names
EXPLAINED = 0.6  # of what they do not share, what a renaming has to explain to be the reason
NOISY = 0.5  # labels that say less than half of what they say elsewhere are noisy
SURE = 2.0  # standard errors
MOST_TIMED = 10_000  # devices of a simulated fleet that are compared
MOST_CLIENTS, MOST_SAMPLES = 50, 200  # of a simulated fleet that its report looks at, of each client


@dataclass(frozen=True)
class HeterogeneityMeasure:
    """An estimate with its 95 % interval; nan where nothing could be compared."""

    value: float
    low: float = 0.0
    high: float = 1.0

    @property
    def known(self) -> bool:
        """Whether it can be told: whether the interval leaves something out."""
        return not math.isnan(self.value) and self.high - self.low <= WIDEST


UNKNOWN = HeterogeneityMeasure(math.nan)


@dataclass(frozen=True, kw_only=True)
class Heterogeneity:
    """What differs between clients.

    label_skew: the share of the labels' diversity that lies between clients and not within them (F_ST: one less the
    chance that two samples of one client differ in label over that of two samples of two clients). Clients that draw
    their label shares from a Dirichlet distribution over K labels have 1 / (K alpha + 1).
    feature_shift: D / (D + A), with D the squared distance of a class at one client from the same class at another, A
    that of two classes of one client; after renaming, where a renaming explains most of D.
    concept_shift: how much of the classes' differences is lost by going by their names: 0 where names agree, 1 where
    every class has another name. Classes that look alike count little.
    label_noise: the share of clients whose labels say less than half of what labels say elsewhere about the inputs.
    size_skew: Gini coefficient of the numbers of samples.
    device_spread: how much longer the slowest tenth takes than the median device, as a share of the median.
    samples: the median client's number of samples.
    separation: how far classes lie apart, over how far the samples of one class do, at the median client.
    """

    label_skew: HeterogeneityMeasure
    feature_shift: HeterogeneityMeasure
    concept_shift: HeterogeneityMeasure
    label_noise: HeterogeneityMeasure
    size_skew: HeterogeneityMeasure
    device_spread: HeterogeneityMeasure
    samples: float = math.nan
    separation: float = math.nan

    def measures(self) -> dict[str, HeterogeneityMeasure]:
        """By name, in order."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, HeterogeneityMeasure)}

    def numbers(self) -> dict[str, float]:
        """Their values alone."""
        return {name: measure.value for name, measure in self.measures().items()}


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
            "how heterogeneous clients are is measured class by class, and this objective has no classes: "
            "compare covey, fedper and fine-tuned, and for tables boosting-personal (covey compare)"
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
    """The numbers of a simulated fleet, at no cost to its clients; what cannot be told is left out.

    Of a large fleet, shifts and noise are those of some clients and their first samples, and devices of some.
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
    tables = []
    for client in evenly(len(data.shares), MOST_CLIENTS).tolist():
        x, y = data.shares[client].train.select(slice(MOST_SAMPLES)).tensors()
        halves = stream(0, "halves", client).integers(0, 2, len(y))
        tables.append(
            table_of_classes(sketches(as_numbers(x).numpy(), EXACT_SIZE), y.numpy(), halves, counts.shape[1])
        )
    shift, concept, noise = shifts([described(table, 0.0) for table in tables])
    measures = {
        "label_skew": label_skew(counts),
        "feature_shift": shift,
        "concept_shift": concept,
        "label_noise": noise,
    }
    return {**{name: measure.value for name, measure in measures.items() if measure.known}, **found}


def evenly(clients: int, most: int) -> NDArray[np.int64]:
    """Up to that many clients, evenly spaced."""
    return np.unique(np.linspace(0, clients - 1, most).astype(np.int64))


def noise_variance(privacy: Privacy) -> float:
    """Of every number in a client's table: Laplace noise of scale b has the variance 2 b^2."""
    return 2 * (SENSITIVITY / privacy.epsilon) ** 2 if privacy.epsilon is not None else 0.0


def heterogeneity(tables: Array, seconds: Sequence[float], *, noise: float = 0.0) -> Heterogeneity:
    """The six numbers from the clients' tables [clients, 2, labels, 1 + size + 1] (see `ClassMeans`)."""
    counts = tables[:, :, :, 0].sum(axis=1)
    clients = [described(table, noise) for table in tables]
    shift, concept, noisy = shifts(clients)
    held = np.maximum(counts.sum(axis=1), 0.0)
    sizes, devices = gini(held), spread(np.asarray(seconds))
    apart = [told_by_labels(one, np.arange(len(one.classes))) for one in clients if len(one.classes) > 1]
    return Heterogeneity(
        label_skew=label_skew(counts, 2 * noise),
        feature_shift=shift,
        concept_shift=concept,
        label_noise=noisy,
        size_skew=HeterogeneityMeasure(sizes, sizes, sizes),
        device_spread=HeterogeneityMeasure(devices, devices, devices),
        samples=float(np.median(held)),
        separation=float(np.median(apart)) if apart else math.nan,
    )


# ---------------------------------------------------------------------------------------------- intervals


def jackknifed(whole: float, left: Array) -> HeterogeneityMeasure:
    """A share with its interval, from what it is without each client; of two clients nothing is known of others."""
    n = len(left)
    if math.isnan(whole):
        return UNKNOWN
    if n < 3 or np.isnan(left).any():
        return HeterogeneityMeasure(float(np.clip(whole, 0.0, 1.0)))
    half = stdtrit(n - 1, 0.5 + CONFIDENCE / 2) * math.sqrt((n - 1) / n * ((left - left.mean()) ** 2).sum())
    return HeterogeneityMeasure(*(float(np.clip(whole + by, 0.0, 1.0)) for by in (0.0, -half, half)))


# ---------------------------------------------------------------------------------------------- the numbers


def label_skew(counts: Array, noise: float = 0.0) -> HeterogeneityMeasure:
    """F_ST of the labels; both chances are estimated without bias, also under noise of this variance.

    Every client counts alike; under noise, by its samples, as that of few samples is all noise.
    """
    sizes = counts.sum(axis=1)
    some = np.flatnonzero(sizes >= 2)
    counts, sizes = counts[some], sizes[some]
    if len(some) < 2:
        return UNKNOWN
    unit = sizes if noise == 0 else np.full(len(sizes), sizes.mean())
    pairs = unit * (unit - 1)
    alike = (counts**2 - counts - noise).sum(axis=1) / pairs
    drawn = (sizes * (sizes - 1) - noise * counts.shape[1]) / pairs
    shares = np.column_stack([counts, sizes]) / unit[:, None]

    def skew(total: Array, squares: Array, chance: Array) -> Array:
        across = (
            total**2 - squares
        )  # the products of two clients, summed over pairs; last that of all samples
        same = across[..., :-1].sum(axis=-1) / across[..., -1]
        return np.where(same < 1, 1 - (1 - chance) / np.where(same < 1, 1 - same, 1.0), 0.0)

    total, squares = shares.sum(axis=0), (shares**2).sum(axis=0)
    whole = float(skew(total, squares, alike.sum() / drawn.sum()))
    if len(some) == 2:
        return jackknifed(whole, np.zeros(0))
    chance = (alike.sum() - alike) / (drawn.sum() - drawn)
    return jackknifed(whole, skew(total - shares, squares - shares**2, chance))


def shifts(
    clients: Sequence[Described],
) -> tuple[HeterogeneityMeasure, HeterogeneityMeasure, HeterogeneityMeasure]:
    """Feature shift, concept shift and label noise; shifts are those of clients whose labels are not noisy."""
    noise, noisy = label_noise(clients)
    found = compare(clients).without(noisy)
    if not len(found.k):
        return UNKNOWN, UNKNOWN, noise
    shared, best, whole = (kept(found, inner, None) for inner in (found.same, found.renamed, found.length))
    agree = whole - shared < AGREE * whole
    explained = best - shared > EXPLAINED * (whole - shared)
    inner = found.renamed if explained and not agree else found.same
    members = np.unique(np.concatenate([found.first, found.second])).tolist()
    outer = found.length if agree else found.renamed
    moved = jackknifed(shift(found, inner, None), np.array([shift(found, inner, one) for one in members]))
    named = jackknifed(concept(found, outer, None), np.array([concept(found, outer, one) for one in members]))
    if agree:  # what is not shared may be the inputs' doing: there may be no concept shift
        named = replace(named, low=0.0)
    elif explained:  # a renaming that is missed passes for a shift: there may be none
        moved = replace(moved, low=0.0)
    else:  # the inputs differ, and hide whether names do
        named = HeterogeneityMeasure(named.value)
    return moved, named, noise


def kept(found: Pairs, values: Array, out: int | None) -> float:
    """The sum over pairs of values, without those of one client."""
    return float(values[(found.first != out) & (found.second != out)].sum())


def shift(found: Pairs, inner: Array, out: int | None) -> float:
    """D / (D + A)."""
    moved, apart = kept(found, found.distance(inner), out), kept(found, found.apart(), out)
    return moved / (moved + apart) if apart > 0 and moved + apart > 0 else math.nan


def concept(found: Pairs, whole: Array, out: int | None) -> float:
    """1 - same / whole, scaled so that it is 1 where none of k classes keeps its name."""
    names = (found.k - 1) / found.k * (whole - found.same)
    there = kept(found, whole, out)
    return kept(found, names, out) / there if there > 0 else math.nan


def label_noise(clients: Sequence[Described]) -> tuple[HeterogeneityMeasure, NDArray[np.int64]]:
    """The share of clients whose labels say less than half of what others' say, and who they are.

    A client's standard error is that of the median client, found from how the two halves of its samples differ.
    """
    said, one, other = (beside_others(clients, part) for part in (2, 0, 1))
    sizes = np.array([client.counts[2].sum() for client in clients])
    differ = np.abs(one - other)[~np.isnan(one - other)]
    nobody = np.zeros(0, dtype=np.int64)
    if len(differ) < 3 or np.isnan(said).mean() > 0.5:
        return UNKNOWN, nobody
    # a normal number is within .6745 deviations of its mean half of the time; a half has twice the variance
    usual = float(np.median(differ)) / (0.6745 * math.sqrt(2)) / math.sqrt(2)
    # near the bound labels say half as much, and so vary half as much
    error = math.sqrt(NOISY) * usual * np.sqrt(np.median(sizes) / np.maximum(sizes, 1))
    known = ~np.isnan(said)
    low, value, high = (((said + by * error) < NOISY).mean() for by in (SURE, 0.0, -SURE))
    # of some nothing is known: they may be noisy, too
    measure = HeterogeneityMeasure(float(value / known.mean()), float(low), float(high + 1 - known.mean()))
    return measure, np.flatnonzero(known & (said + error < NOISY))


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
