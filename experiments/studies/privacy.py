"""Attacks on what clients send, before and after protection: who participated, which pictures, which labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core import Client, Reply, Step, Task, run_rounds
from covey.data import federate, load
from covey.data.types import Federation
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.parts.portraits.clusters import class_distances, clusters
from covey.parts.portraits.portrait import classes_in, standardised
from covey.parts.steps import Evaluate, Train
from covey.parts.steps.noisy_evaluate import NoisyEvaluate
from covey.parts.steps.private import Noised
from covey.privacy.apply import made_private
from covey.privacy.settings import Private
from covey.privacy.sketch import COUNTED_AS, SketchClasses, class_table
from covey.report.seeds import Number
from covey.runs.config import fleet_of, resolve
from covey.streams import stream
from covey.training.models import build
from covey.training.rows import write_row
from experiments.spec import Findings
from experiments.studies.pictures import of_curves

Array = NDArray[np.float64]

DIMS = 64  # of a sketch, as covey has them


# ---------------------------------------------------------------------------------------------- labels


def labels(settings: dict[str, Any], seed: int) -> Findings:
    """The server sends models that always say one class: their accuracy is the share of that class at a client."""
    fleet = fleet_for(settings, seed)
    clients = range(len(fleet.data.shares))
    classes = len(fleet.data.dataset.classes)
    truth = np.array(
        [
            np.bincount(share.test.labels().astype(int), minlength=classes) / max(1, len(share.test))
            for share in fleet.data.shares
        ]
    )
    steps: dict[str, Step] = {"exact evaluations": Evaluate()}
    steps |= {f"epsilon {e:g} each": NoisyEvaluate(epsilon=e) for e in settings["epsilons"]}
    rows, errors = {}, []
    for name, step in steps.items():
        read = np.zeros_like(truth)
        for label in range(classes):
            task = Task(models=always(fleet, label)[None], slots=(0,))
            for reply in fleet.ask(step, dict.fromkeys(clients, task)):
                read[reply.id, label] = reply.stats["accuracy"]
        error = float(np.abs(read - truth).mean())
        found = float((read.argmax(1) == truth.argmax(1)).mean())
        rows[name] = {"mean error of a label's share": error, "most frequent label found": found}
        errors.append(found)
    fleet.close()
    bars = dict(zip(steps, errors, strict=True))
    return Findings(rows=rows, pictures={"labels.png": partial(draw_bars, bars, "most frequent label found")})


def always(fleet: LocalFleet, label: int) -> Tensor:
    """A model that says one class whatever it is shown: the last bias decides."""
    row = torch.zeros(fleet.layout.size)
    classes = len(fleet.data.dataset.classes)
    row[fleet.layout.trainable - classes + label] = 1.0
    return row


# ---------------------------------------------------------------------------------------------- pictures


def inversion(settings: dict[str, Any], seed: int) -> Findings:
    """One step on one picture: each row of the first layer's update is the picture times a number, which is its bias'.

    x = dW_i / db_i (Phong et al., 2018), taken from the row with the largest bias; no search is needed.
    """
    fleet = fleet_for({**settings, "model": "softmax"}, seed)
    data = fleet.data
    one = replace_shares(data, [share.train.select(np.arange(1)) for share in data.shares])
    lone = LocalFleet(one, fleet.model, seed=seed, engine=Engine(mode="serial", lanes=False))
    train = Train(epochs=1, batch=1, lr=0.1)
    start = lone.start()
    ids = range(len(one.shares))
    pictures = torch.stack([share.train.tensors()[0][0].flatten() for share in one.shares])
    shown: dict[str, Tensor] = {"the picture": pictures[0]}
    rows = {}

    def updates(step: Step) -> Tensor:
        replies = lone.ask(step, dict.fromkeys(ids, Task(models=start[None], slots=(0,))))
        return torch.stack([told(reply) - start for reply in replies])

    plain = updates(train)
    tries = {"one update": plain}
    for noise in settings["noises"]:
        tries[f"one update, noise {noise:g}"] = updates(
            Noised(step=train, clip=settings["clip"], noise=noise)
        )
    tries["sum of all, no noise"] = plain.sum(0, keepdim=True).expand(len(plain), -1)
    for name, seen in tries.items():
        found = torch.stack([inverted(update, pictures.shape[1]) for update in seen])
        likeness = [alike(a, b) for a, b in zip(found, pictures, strict=True)]
        rows[name] = {"correlation with the picture": float(np.mean(likeness))}
        shown[name] = found[0]
    fleet.close()
    lone.close()
    side = round(pictures.shape[1] ** 0.5)
    return Findings(rows=rows, pictures={"inversion.png": partial(draw_pictures, shown, side)})


def told(reply: Reply) -> Tensor:
    assert reply.vector is not None
    return reply.vector


def inverted(update: Tensor, inputs: int) -> Tensor:
    """The input of a linear layer from its update: weights first, then biases."""
    outputs = len(update) // (inputs + 1)
    weights, biases = update[: outputs * inputs].view(outputs, inputs), update[outputs * inputs :]
    largest = int(biases.abs().argmax())
    return weights[largest] / biases[largest] if biases[largest] else weights[largest]


def alike(a: Tensor, b: Tensor) -> float:
    """The absolute correlation of two pictures."""
    a, b = a.double() - a.double().mean(), b.double() - b.double().mean()
    return abs(float((a @ b) / (a.norm() * b.norm()).clamp_min(1e-12)))


# ---------------------------------------------------------------------------------------------- members


def membership(settings: dict[str, Any], seed: int) -> Findings:
    """LiRA (Carlini et al., 2022): is a sample's confidence that of models that trained on it, or of others?

    Shadow models each train on a random half of every client's samples; for each sample a Gaussian is fitted to
    log(p / (1 - p)) of the true class, in and out, and the likelihood ratio of the target's is the score.
    """
    rows, curves = {}, {}
    for name, private in settings["defences"].items():
        scores, truth = attacked(settings, private, seed)
        order = np.argsort(-scores, kind="stable")
        hits = np.cumsum(truth[order]) / truth.sum()
        false = np.cumsum(~truth[order]) / (~truth).sum()
        rows[name] = {
            "area under ROC": float(np.trapezoid(hits, false)),
            "found at 1 % false alarms": float(hits[false <= 0.01].max(initial=0.0)),
        }
        curves[name] = (false.tolist(), hits.tolist())
    thinned = {
        name: (x[:: max(1, len(x) // 300)], y[:: max(1, len(y) // 300)]) for name, (x, y) in curves.items()
    }
    picture = of_curves(
        thinned, x_label="false alarms", y_label="members found", title="Who was in the training data?"
    )
    return Findings(rows=rows, curves=curves, pictures={"membership.png": picture})


def attacked(
    settings: Mapping[str, Any], private: Mapping[str, Any], seed: int
) -> tuple[Array, NDArray[np.bool_]]:
    """The score of every training sample under the last model, and whether that model trained on it."""
    whole = federate(load(settings["data"]), partition="iid", clients=settings["clients"], seed=seed)
    sizes = [len(share.train) for share in whole.shares]
    confidence, inside = [], []
    for number in range(settings["shadows"] + 1):
        rng = stream(seed, "shadow", number)
        halves = [np.sort(rng.permutation(size)[: size // 2]) for size in sizes]
        half = replace_shares(whole, [s.train.select(h) for s, h in zip(whole.shares, halves, strict=True)])
        model = build(settings["model"], input_shape=tuple(whole.dataset.x.shape[1:]), outputs=10, seed=seed)
        fleet = LocalFleet(half, model, seed=seed + number, engine=Engine(mode="serial"))
        method = fedavg(Train(**settings["train"]), per_round=settings["clients"], weighting="equal")
        if private:
            method = made_private(
                method, Private(**private), clients=settings["clients"], rounds=settings["rounds"]
            )
        state = run_rounds(method, fleet, rounds=settings["rounds"])
        fleet.close()
        confidence.append(np.concatenate([logits(model, state.models[0], s.train) for s in whole.shares]))
        inside.append(np.concatenate([np.isin(np.arange(n), h) for n, h in zip(sizes, halves, strict=True)]))
    return likelihood_ratio(np.array(confidence[:-1]), np.array(inside[:-1]), confidence[-1]), inside[-1]


def logits(model: torch.nn.Module, row: Tensor, samples: Any) -> Array:
    """log(p / (1 - p)), p the probability of the true class."""
    write_row(model, row)
    model.eval()
    x, y = samples.tensors()
    with torch.no_grad():
        p = torch.softmax(model(x).double(), 1)[torch.arange(len(y)), y].clamp(1e-12, 1 - 1e-12)
    return (p.log() - (1 - p).log()).numpy()


def likelihood_ratio(shadows: Array, inside: NDArray[np.bool_], target: Array) -> Array:
    """log N(t; mean_in, s_in) - log N(t; mean_out, s_out), with one standard deviation over all samples each."""

    def fitted(chosen: NDArray[np.bool_]) -> tuple[Array, float]:
        kept = np.ma.masked_array(shadows, ~chosen)
        means = kept.mean(axis=0).filled(float(shadows.mean()))
        return means, float(np.sqrt((kept - means).std() ** 2 + 1e-12))

    (mean_in, spread_in), (mean_out, spread_out) = fitted(inside), fitted(~inside)
    return np.asarray(
        -(((target - mean_in) / spread_in) ** 2) / 2
        + ((target - mean_out) / spread_out) ** 2 / 2
        - np.log(spread_in / spread_out)
    )


# ---------------------------------------------------------------------------------------------- fleets and pictures


def fleet_for(settings: Mapping[str, Any], seed: int) -> LocalFleet:
    """Clients with a share of the data each."""
    data = federate(
        load(settings["data"]), partition="dir-class", clients=settings["clients"], seed=seed, alpha=0.5
    )
    model = build(settings["model"], input_shape=tuple(data.dataset.x.shape[1:]), outputs=10, seed=seed)
    return LocalFleet(data, model, seed=seed, engine=Engine(mode="serial", lanes=False))


def replace_shares(data: Federation, train: Sequence[Any]) -> Federation:
    """The same clients with other training samples."""
    shares = tuple(replace(share, train=part) for share, part in zip(data.shares, train, strict=True))
    return replace(data, shares=shares)


def draw_bars(values: Mapping[str, float], label: str, path: Any) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    axes.barh(list(values), list(values.values()), color="#4477aa")
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel(label)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_pictures(shown: Mapping[str, Tensor], side: int, path: Any) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(shown), figsize=(1.8 * len(shown), 2.2), layout="constrained")
    for axis, (name, picture) in zip(axes, shown.items(), strict=True):
        axis.imshow(picture.view(-1, side, side)[0].numpy(), cmap="gray")
        axis.set_title(name, fontsize=8)
        axis.axis("off")
    figure.savefig(path, dpi=150)
    plt.close(figure)


# ---------------------------------------------------------------------------------------------- sketches


def sketches(settings: dict[str, Any], seed: int) -> Findings:
    """How well `covey` finds its clusters from class sums under noise: the adjusted Rand index with the true ones.

    A row for each epsilon, a column for each number of samples per client, and of classes, where some are to be left
    out; the number of clusters is not given.
    """
    from sklearn.metrics import adjusted_rand_score

    fleet = fleet_of(resolve({**settings["run"], "seed": seed}), None)
    shares, all_classes = fleet.data.shares, len(fleet.data.dataset.classes)
    fleet.close()
    truth = [share.cluster for share in shares]
    rows: dict[str, dict[str, Number]] = {f"epsilon {epsilon:g}": {} for epsilon in settings["epsilons"]}
    several = settings.get("classes", [all_classes])
    for samples, classes in product(settings["samples"], several):
        column = f"{samples} samples" + (f" of {classes} classes" if len(several) > 1 else "")
        first = [np.flatnonzero(classes_in(share.train) < classes)[:samples] for share in shares]
        some = [share.train.select(which) for share, which in zip(shares, first, strict=True)]
        seen = [cast(Client, SimpleNamespace(train=part)) for part in some]
        tables = [class_table(standardised(one), classes_in(one.train), classes, DIMS) for one in seen]
        for epsilon in settings["epsilons"]:
            step, rng = SketchClasses(epsilon=epsilon, dims=DIMS), stream(seed, "noise", samples, epsilon)
            noisy = [table + step.scale * rng.standard_normal(table.shape) for table in tables]
            told = [{"sums": one[:, :-1], "counts": one[:, -1] / COUNTED_AS} for one in noisy]
            compared = class_distances([step.portraits(one)[0] for one in told])
            found = adjusted_rand_score(truth, clusters(compared).labels)
            rows[f"epsilon {epsilon:g}"][column] = float(found)
    return Findings(rows=rows)
