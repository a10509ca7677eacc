"""The embedding paper's studies: what the bits reveal (Table II, Fig. 3), and how many flips they bear (Fig. 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covey.core import Task, stream
from covey.core.round import empty_state, open_round
from covey.data import Samples, load
from covey.fleet.local import LocalFleet
from covey.methods.embedding.denoising import denoise
from covey.methods.embedding.pretraining import Pretrain
from covey.methods.embedding.ward import Ward
from covey.parts.group.centroids import settled
from covey.parts.steps.embedding import Bits, Embed, answers, respond, unpack
from covey.runs.config import fleet_of, resolve
from covey.training.bench import Recipe
from covey.training.bench.torch_bench import TorchBench
from covey.training.models import build
from covey.training.objective import Objective, Reconstruction, Regression
from covey.training.rows import read_row, write_row
from experiments.spec import Findings
from experiments.studies.pictures import of_curves

Array = NDArray[np.float64]


# ------------------------------------------------------------------------------------------ Table II, Fig. 3


def reconstruction(settings: dict[str, Any], seed: int) -> Findings:
    """Pictures back from their codes: untouched, and quantised with more and more flips.

    The worst case: a client with one sample of a class, so that the class mean is that sample's code. Two attackers:
    the paper's, who has the autoencoder and even the code's smallest and largest value, and one who has only
    the bits, but has trained a decoder for just these bits on as many pictures of the same kind.
    """
    data = replace(load(settings["data"]), scale=None)
    model = build(
        settings["autoencoder"], input_shape=tuple(data.x.shape[1:]), outputs=1, **settings["model"]
    )
    pictures, _ = Samples(data, data.train[: settings["train"]]).tensors()
    unseen, _ = Samples(data, data.test[: settings["test"]]).tensors()
    trained(model, Reconstruction(), pictures, pictures, settings["epochs"], stream(seed, "attacked"))
    encode, decode = codes_of(model.get_submodule("encoder")), codes_of(model.get_submodule("decoder"))
    shape = encode(unseen[:1]).shape[1:]
    known, code = encode(pictures).flatten(1).numpy(), encode(unseen).flatten(1).numpy()

    def back(values: NDArray[np.floating[Any]]) -> Tensor:
        return decode(torch.from_numpy(values.astype(np.float32)).view(-1, *shape))

    rows = {"no quantisation": {"MSE": mse(back(code), unseen)}}
    grid, names = [unseen, back(code)], ["input", "code"]
    for flip in settings["flips"]:
        rng = stream(seed, "flips", str(flip))
        guess = back(study_bits(code, flip, rng))
        at_means = back(study_bits(code, flip, stream(seed, "flips", str(flip)), at="means"))
        learned = learned_decoder(known, pictures, code, flip, settings, seed)
        rows[f"{flip:.0%} flips"] = {
            "MSE": mse(guess, unseen),
            "MSE, bits at the means": mse(at_means, unseen),
            "MSE, learned decoder": mse(learned, unseen),
        }
        grid.append(guess)
        names.append(f"{flip:.0%}")
    grid.append(learned_decoder(known, pictures, code, settings["shown"], settings, seed))
    names.append(f"{settings['shown']:.0%}, learned")
    rows["mean picture"] = {"MSE": mse(pictures.mean(0).expand_as(unseen), unseen)}
    return Findings(rows=rows, pictures={"reconstructions.png": partial(draw_grid, grid, names)})


def study_bits(
    code: NDArray[np.floating[Any]],
    flip: float,
    rng: np.random.Generator,
    at: Literal["extremes", "means"] = "extremes",
) -> Array:
    """The study's quantiser: round, threshold at the vector's mean, to its smallest or largest value, and flip.

    `at = "means"` puts a bit at the mean of the values that it stands for: an attacker's better guess.
    """
    rounded = np.round(code)
    low, high = rounded.min(axis=1, keepdims=True), rounded.max(axis=1, keepdims=True)
    bits = rounded >= rounded.mean(axis=1, keepdims=True)
    if at == "means":
        low = mean_where(~bits, rounded, low)
        high = mean_where(bits, rounded, high)
    up = bits ^ (rng.random(code.shape) < flip)
    return np.asarray(np.where(up, high, low), np.float64)


def mean_where(
    chosen: NDArray[np.bool_], values: NDArray[np.floating[Any]], otherwise: NDArray[np.floating[Any]]
) -> NDArray[np.floating[Any]]:
    """The mean of each row's chosen values; `otherwise` where a row has none (all its values are alike)."""
    count = chosen.sum(axis=1, keepdims=True)
    return np.where(count > 0, (values * chosen).sum(axis=1, keepdims=True) / np.maximum(count, 1), otherwise)


def learned_decoder(
    known: NDArray[np.float32],
    pictures: Tensor,
    code: NDArray[np.float32],
    flip: float,
    settings: Mapping[str, Any],
    seed: int,
) -> Tensor:
    """What a decoder makes of noisy bits that was trained on the noisy bits of other pictures."""

    def bits(codes: NDArray[np.float32], name: str) -> Tensor:
        up = codes >= codes.mean(axis=1, keepdims=True)
        noisy = up ^ (stream(seed, name, str(flip)).random(codes.shape) < flip)
        return torch.from_numpy(2 * noisy.astype(np.float32) - 1)

    size = int(pictures[0].numel())
    model = nn.Sequential(nn.Linear(known.shape[1], 256), nn.ReLU(), nn.Linear(256, size), nn.Sigmoid())
    again = fresh(model, seed)
    target = pictures.flatten(1)
    trained(again, Regression(), bits(known, "known"), target, settings["epochs"], stream(seed, "decoder"))
    return codes_of(again)(bits(code, "unseen")).view(-1, *pictures.shape[1:])


def fresh(model: nn.Module, seed: int) -> nn.Module:
    """The same layers with weights that depend on the seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
    return model


def trained(
    model: nn.Module, objective: Objective, x: Tensor, y: Tensor, epochs: int, rng: np.random.Generator
) -> None:
    """Adam at 1e-3, batches of 64, in place."""
    orders = [rng.permutation(len(x)) for _ in range(epochs)]
    batches = [order[start : start + 64] for order in orders for start in range(0, len(x), 64)]
    bench = TorchBench(model, objective)
    write_row(model, bench.fit(read_row(model), x, y, batches, Recipe(optimiser="adam", lr=1e-3), seed=0).row)


def codes_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The model as a function of many samples."""

    def forward(x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([model.eval()(part) for part in torch.split(x, 1000)])

    return forward


def mse(guess: Tensor, truth: Tensor) -> float:
    return float((guess - truth).square().mean())


def draw_grid(grid: Sequence[Tensor], names: Sequence[str], path: Any) -> None:
    """Fig. 3: some pictures and what comes back of them, one row per level of noise."""
    from experiments.figures import draw_image_grid

    images = torch.stack([row[:10] for row in grid]).movedim(2, -1).numpy()
    images = images[..., 0] if images.shape[-1] == 1 else images
    draw_image_grid(images, path=path, row_labels=names, title="What comes back of the embedding")


# ------------------------------------------------------------------------------------------ attribute inference


def attributes(settings: dict[str, Any], seed: int) -> Findings:
    """Which classes does a client hold? Read off its bits by a server that knows nothing but everybody's bits.

    The bits of a class that a client lacks are fair coins; those of one it has agree with other clients' bits of this
    class. Half of the clients (whose classes the attacker is told) set the threshold, the other half are attacked.
    """
    fleet, bits = quiet_bits(settings["run"], settings["pretrain"], seed)
    held = fleet.data.label_counts() > 0
    classes = held.shape[1]
    rows = {}
    for flip in settings["flips"]:
        said = noisy(bits, flip, seed).reshape(len(bits), -1)[:, : bits[0].size]
        score = agreement(said.reshape(len(bits), classes, -1))
        accuracy, area = attack(score, held, stream(seed, "told", str(flip)))
        chance = max(float(held.mean()), 1 - float(held.mean()))
        rows[f"{flip:.0%} flips"] = {"accuracy": accuracy, "chance": chance, "area under ROC": area}
    return Findings(rows=rows)


def agreement(said: Bits) -> Array:
    """How well a client's bits of a class go along with the mean of the others' bits of it, [clients, classes]."""
    signs = 2.0 * said - 1
    others = (signs.sum(axis=0, keepdims=True) - signs) / max(1, len(signs) - 1)
    return np.asarray((signs * others).mean(axis=2))


def attack(score: Array, held: NDArray[np.bool_], rng: np.random.Generator) -> tuple[float, float]:
    """Accuracy on one half of the clients with the threshold that is best on the other, and the area under the ROC."""
    from sklearn.metrics import roc_auc_score

    order = rng.permutation(len(score))
    told, attacked = order[: len(order) // 2], order[len(order) // 2 :]
    levels = np.concatenate([[-np.inf], np.unique(score[told]), [np.inf]])
    best = max(levels, key=lambda level: float(((score[told] >= level) == held[told]).mean()))
    truth = held[attacked].ravel()
    area = float(roc_auc_score(truth, score[attacked].ravel())) if 0 < truth.mean() < 1 else float("nan")
    return float(((score[attacked] >= best) == held[attacked]).mean()), area


# ------------------------------------------------------------------------------------------ Fig. 4


def flips(settings: dict[str, Any], seed: int) -> Findings:
    """Adjusted Rand index of the clusters against the truth, by share of flipped bits, for both pre-trainings.

    "ours" takes the noise away and cuts the tree exactly, "plain" cuts the tree of the raw bits exactly,
    "published" is the authors' objective.
    """
    rows: dict[str, dict[str, float]] = {}
    curves: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for way in settings["ways"]:
        fleet, bits = quiet_bits(settings["run"], {**settings["pretrain"], "way": way}, seed)
        truth = [share.cluster for share in fleet.data.shares]
        found: dict[str, list[float]] = {}
        for flip in settings["flips"]:
            said = noisy(bits, flip, seed)
            cells = {
                name: rand_index(truth, said, flip, name, settings["min_size"]) for name in settings["cuts"]
            }
            rows[f"{way}, {flip:.0%}"] = cells
            for name, value in cells.items():
                found.setdefault(name, []).append(value)
        curves |= {f"{way}, {name}": (list(settings["flips"]), values) for name, values in found.items()}
    picture = of_curves(
        curves, x_label="probability of a flip", y_label="adjusted Rand index", title="Clusters found"
    )
    return Findings(rows=rows, curves=curves, pictures={"agreement.png": picture})


def rand_index(truth: Sequence[int], said: Bits, flip: float, how: str, min_size: int) -> float:
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng(0)
    if how == "ours":
        points, noise = denoise(said, np.full(len(said), flip))
        if not points.shape[1]:
            return 0.0
        labels = settled(points, Ward(min_size=min_size).cut(points, rng, noise).labels)
    else:
        ward = Ward(search="published" if how == "published" else "exact", min_size=min_size)
        labels = ward.cut(said, rng).labels
    return float(adjusted_rand_score(truth, labels))


def quiet_bits(
    tables: Mapping[str, Any], pretrain: Mapping[str, Any], seed: int
) -> tuple[LocalFleet, list[Bits]]:
    """A fleet and its clients' bits before any flip, [classes, d] each."""
    config = resolve({**tables, "seed": seed})
    fleet = fleet_of(config)
    try:
        now = open_round(empty_state(fleet), fleet)
        row = Pretrain(**pretrain)(now)
        task = Task(models=row[None], slots=(0,))
        replies = fleet.ask(Embed(flip=(0.0,)), dict.fromkeys(now.here, task))
    finally:
        fleet.close()
    classes = max(1, len(fleet.data.dataset.classes))
    packed = [unpack(np.asarray(reply.stats["bits"], np.uint8)) for reply in replies]
    each = len(packed[0]) // classes
    return fleet, [bits[: classes * each].reshape(classes, each) for bits in packed]


def noisy(bits: Sequence[Bits], flip: float, seed: int) -> Bits:
    """Everybody's bits after the flips, one row each."""
    tables = (answers(own.shape, flip, stream(seed, "answers", str(flip), i)) for i, own in enumerate(bits))
    return np.stack([respond(own, table).reshape(-1) for own, table in zip(bits, tables, strict=True)])
