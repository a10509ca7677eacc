"""What descriptions of clients are worth under noise, and what they give away without it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from covey.core import Client, Task
from covey.data.types import Samples
from covey.methods.flux import MISSING, between
from covey.methods.pacfl import principal_angles
from covey.parts.group.reports import cut_tree
from covey.parts.portraits.clusters import class_distances, clusters
from covey.parts.portraits.portrait import DescribeClasses, classes_in, standardised
from covey.parts.portraits.views import views_of
from covey.parts.steps.privacy import Privacy
from covey.privacy.accountant import Sampling, noise_for
from covey.privacy.sketch import COUNTED_AS, SketchClasses, class_table, projection
from covey.report.seeds import Number
from covey.runs.config import fleet_of, resolve
from covey.streams import stream
from experiments.spec import Findings

Array = NDArray[np.float64]
DELTA = 5e-6
DIMS, MOMENTS, VECTORS = (
    64,
    8,
    3,
)  # of covey's sketch and of PACFL's matrix; FLUX's directions; PACFL's vectors


def compared(settings: dict[str, Any], seed: int) -> Findings:
    """The adjusted Rand index of clusters from three descriptions under one epsilon for a sample.

    FLUX and PACFL are told the true number of clusters, covey is not. Each is made private as is usual: samples of
    length 1, sums of what the description is made of, one Gaussian mechanism.
    """
    from sklearn.metrics import adjusted_rand_score

    fleet = fleet_of(resolve({**settings["run"], "seed": seed}), None)
    shares, classes = fleet.data.shares, len(fleet.data.dataset.classes)
    fleet.close()
    truth = [share.cluster for share in shares]
    count = len(set(truth))
    known = [described(share.train.select(slice(0, settings["samples"]))) for share in shares]
    rows: dict[str, dict[str, Number]] = {}
    for epsilon in settings["epsilons"]:
        noise = 0.0 if math.isinf(epsilon) else noise_for(epsilon, DELTA, sampling=Sampling(), times=1)
        rng = stream(seed, "noise", str(epsilon))
        flux = [moments(units, labels, classes, noise, rng) for units, labels in known]
        pacfl = [subspace(units, noise, rng) for units, _ in known]
        angles = principal_angles(pacfl, pacfl)
        found = {
            "covey": of_covey(known, classes, epsilon, noise, rng),
            "FLUX, clusters given": cut_tree(between(flux, flux), clusters=count),
            "PACFL, clusters given": cut_tree((angles + angles.T) / 2, clusters=count),
        }
        name = "no noise" if math.isinf(epsilon) else f"epsilon {epsilon:g}"
        rows[name] = {who: float(adjusted_rand_score(truth, labels)) for who, labels in found.items()}
    return Findings(rows=rows)


def described(part: Samples) -> tuple[Array, NDArray[np.int64]]:
    """What covey describes of samples, projected and of length 1, and their classes."""
    seen = cast(Client, SimpleNamespace(train=part))
    values = views_of(standardised(seen))[0].values
    values = values @ projection(values.shape[1], min(DIMS, values.shape[1]))
    return values / np.linalg.norm(values, axis=1, keepdims=True), classes_in(part)


def of_covey(
    known: list[tuple[Array, NDArray[np.int64]]],
    classes: int,
    epsilon: float,
    noise: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    step = SketchClasses(epsilon=min(epsilon, 1000.0), delta=DELTA, dims=DIMS)
    portraits = []
    for units, labels in known:
        table = np.zeros((classes, DIMS + 1))
        np.add.at(table[:, :-1], labels, units)
        table[:, -1] = COUNTED_AS * np.bincount(labels, minlength=classes)
        noisy = table + noise * math.hypot(1.0, COUNTED_AS) * rng.standard_normal(table.shape)
        told = {"sums": noisy[:, :-1], "counts": noisy[:, -1] / COUNTED_AS}
        portraits.append(step.portraits(told)[0])
    return clusters(class_distances(portraits)).labels


def moments(
    units: Array, labels: NDArray[np.int64], classes: int, noise: float, rng: np.random.Generator
) -> Array:
    """FLUX's means and deviations in a few directions, of all samples and means of each class, from noisy sums.

    A sample is v, its squares and a count among all, v and a count in its class: of length at most sqrt(3 + 2 / 16).
    """
    seen = units[:, :MOMENTS]
    seen = seen / np.maximum(1.0, np.linalg.norm(seen, axis=1, keepdims=True) / math.sqrt(MOMENTS / DIMS))
    seen = seen * math.sqrt(DIMS / MOMENTS)  # what is usual has length 1, and nothing is longer
    sums = np.zeros((2 + classes, MOMENTS))
    sums[0], sums[1] = seen.sum(axis=0), (seen**2).sum(axis=0)
    np.add.at(sums[2:], labels, seen)
    counts = np.concatenate([[len(seen)], np.bincount(labels, minlength=classes)]).astype(np.float64)
    scale = noise * math.sqrt(3 + 2 * COUNTED_AS**2)
    sums = sums + scale * rng.standard_normal(sums.shape)
    noisy = counts + scale / COUNTED_AS * rng.standard_normal(counts.shape)
    unsure = noisy <= max(0.5, 2 * scale / COUNTED_AS)  # such a class counts as missing
    counts = np.maximum(1.0, noisy)
    means = sums / np.concatenate([counts[:1], counts[:1], counts[1:]])[:, None]
    means[1] = np.sqrt(np.maximum(0.0, means[1] - means[0] ** 2))
    means[2:][unsure[1:]] = MISSING
    return np.asarray(means)


def subspace(units: Array, noise: float, rng: np.random.Generator) -> Array:
    """PACFL's first singular vectors, of the noisy sum of u u^T (Dwork et al., 2014): of length 1 for a sample."""
    drawn = rng.standard_normal((units.shape[1], units.shape[1]))
    upper = np.triu(drawn) + np.triu(drawn, 1).T
    _, vectors = np.linalg.eigh(units.T @ units + noise * upper)
    return np.asarray(vectors[:, ::-1][:, :VECTORS])


# ---------------------------------------------------------------------------------------------- attacks


def attacked(settings: dict[str, Any], seed: int) -> Findings:
    """Membership and reconstruction from what a client tells of its classes, before and after noise."""
    fleet = fleet_of(resolve({**settings["run"], "seed": seed}), None)
    data = fleet.data
    fleet.close()
    classes = len(data.dataset.classes)
    # the attacker knows what classes look like elsewhere
    elsewhere = Samples(data.dataset, data.dataset.test)
    public, public_labels = described(elsewhere)
    usual = np.stack([public[public_labels == label].mean(axis=0) for label in range(classes)])
    rng = stream(seed, "attack")
    rows: dict[str, dict[str, Number]] = {}
    for name, tell in ways(settings["epsilons"], classes, seed).items():
        scores, inside, rebuilt = [], [], []
        for number, share in enumerate(data.shares):
            part = share.train.select(slice(0, settings["samples"]))
            units, labels = described(part)
            told = tell(number, part) - usual
            others = rng.choice(len(public), len(units))
            for u, label, member in (
                *((u, label, True) for u, label in zip(units, labels, strict=True)),
                *((public[i], public_labels[i], False) for i in others),
            ):
                scores.append(float((u - usual[label]) @ told[label]))
                inside.append(member)
            alone = [i for i, label in enumerate(labels) if (labels == label).sum() == 1]
            rebuilt += [cosine(told[labels[i]], units[i] - usual[labels[i]]) for i in alone]
        rows[name] = {
            "area under ROC, who was in": area(np.array(scores), np.array(inside)),
            "cosine with a sample alone in its class": float(np.mean(rebuilt)),
        }
    return Findings(rows=rows)


def ways(epsilons: list[float], classes: int, seed: int) -> dict[str, Any]:
    """How class means can be told: exactly, in flipped bits, as sums under noise."""

    def exact(_number: int, part: Samples) -> Array:
        units, labels = described(part)
        return np.stack(
            [
                units[labels == c].mean(axis=0) if (labels == c).any() else np.zeros(DIMS)
                for c in range(classes)
            ]
        )

    def bits(number: int, part: Samples) -> Array:
        client = cast(
            Client,
            SimpleNamespace(
                id=number,
                train=part,
                account=None,
                live=False,
                state={},
                seed=seed,
                stream=lambda *names: stream(seed, number, *names),
                rng=stream(seed, "bits", number),
            ),
        )
        step = DescribeClasses(flip=0.1, privacy=Privacy())
        told = step(client, Task()).stats
        views = step.portraits(told)
        assert views is not None
        means = views[0].halves.sum(axis=0)  # a sample is in one of the halves
        values = (means - 0.5) @ projection(means.shape[1], DIMS)
        return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-9))

    def noisy(number: int, part: Samples, epsilon: float) -> Array:
        seen = cast(Client, SimpleNamespace(train=part))
        table = class_table(standardised(seen), classes_in(part), classes, DIMS)
        scale = SketchClasses(epsilon=epsilon, delta=DELTA, dims=DIMS).scale
        table = table + scale * stream(seed, "noise", number, str(epsilon)).standard_normal(table.shape)
        return np.asarray(table[:, :-1] / np.maximum(1.0, table[:, -1:] / COUNTED_AS))

    found: dict[str, Any] = {"exact class means": exact, "bits, 10 % flipped": bits}
    for epsilon in epsilons:
        found[f"class sums, epsilon {epsilon:g}"] = lambda n, part, e=epsilon: noisy(n, part, e)
    return found


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / max(1e-12, float(np.linalg.norm(a) * np.linalg.norm(b))))


def area(scores: Array, inside: NDArray[np.bool_]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(inside, scores))
