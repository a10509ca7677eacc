"""A client's classes as noisy bits from which anybody can compute unbiased distances.

    z_c = mean of x over one half of the client's samples of class c, moved into [0, 1]   (both halves, each for itself)
    b_c = 1 with probability z_c, else 0, several times for each value                     (dithering)
    every bit is flipped with probability P                                                (randomised response)

(b - P) / (1 - 2 P) is then an unbiased estimate of z_c, and since the two halves share neither samples nor noise, the
product of their differences, <A_i - A_j, B_i - B_j>, is an unbiased estimate of the squared distance of two clients'
classes, however few samples and however much noise there is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core.reply_schema import Known, Stat
from covey.core.round import Client, Reply, Step, Task
from covey.data.types import View as Samples
from covey.errors import UserError
from covey.parts.steps.embedding import (
    BitNoise,
    Bits,
    Embed,
    Spending,
    answers_of_bytes,
    pack,
    respond,
    unpack,
)
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.labels import label_counts
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.summaries import tell
from covey.settings.ranges import BelowHalf
from covey.settings.registry import register
from covey.settings.signatures import validated

Floats = NDArray[np.float64]

REMEMBERED = 4096  # answers of simulated clients, some 15 kB each
_ANSWERS: dict[tuple[Any, ...], Answer] = {}
_ADDING = Lock()
BITS = 4096  # for every class and half, about
STROKE_BITS = 2048  # more of them for the directions of a picture's strokes
CELLS, DIRECTIONS = 4, 8  # strokes are told for 4 x 4 parts of a picture, in eight directions
SIDE = 16  # of the pictures that are described; larger ones are averaged down to it
RANGE = 1.5  # class means are told in the range of -1.5 to 1.5 standard deviations; finer than the values themselves
USUAL_EDGE = 0.5  # of standardised pictures: the middle of what edges are told as
USUAL_STROKE = 0.35  # and of what strokes are told as
FARTHEST = 50.0  # scales of Laplace's noise that no count is above what there is: e^-50 of all are


@register("step")
@validated
@dataclass(frozen=True, kw_only=True)
class DescribeClasses(Step):
    """Asks for a portrait: counts of the labels, and noisy bits of every class's mean in two halves of the samples.

    flip: the probability with which a bit lies. privacy: of the counts. noise: "simulated" draws from the client's
    seeded stream, "opendp" from OpenDP's secure source, which a real device always does. Dithering and answers are
    drawn once, so that asking again tells nothing new about data that did not change.
    """

    flip: BelowHalf = 0.1
    privacy: Privacy = Privacy()
    noise: BitNoise = "simulated"

    kind: ClassVar[str] = "query.portrait"
    of_labels: ClassVar[bool] = True

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        classes = classes_of(len(client.train.dataset.classes))
        if self.counted and not client.train.dataset.classes:
            raise UserError(
                "a portrait under noise needs classes: above or below a client's median, one sample can move all others"
            )
        x, y = standardised(client), classes_in(client.train)
        answer = self.known_answer(client, x, y) if self.repeatable(client) else self.answer(client, x, y)
        counts = label_counts(y, labels=classes, who=f"client {client.id}")
        told, noisy = tell(client, self.privacy, counts, sensitivity=1.0)
        stats: dict[str, Any] = {"counts": np.maximum(noisy, 0.0), "bits": answer.bits, "views": answer.views}
        on_counts = float(told.get("epsilon", math.inf))
        stats["epsilon"] = on_counts + answer.spent if client.account is None else self.on_account(client)
        return Reply(id=client.id, size=1 if self.counted else len(y), stats=stats)

    def answer(self, client: Client, x: Tensor, y: NDArray[np.int64]) -> Answer:
        """The noisy bits of every class's mean in two halves of the samples."""
        classes = classes_of(len(client.train.dataset.classes))
        views = views_of(x)
        halves = halves_by_themselves(x) if self.counted else client.stream("halves").permutation(len(y)) % 2
        told_as = []
        for view in views:
            means = np.stack([class_means(view.values, y, halves == half, classes) for half in (0, 1)])
            shares = np.clip(means / (2 * RANGE) + 0.5, 0.0, 1.0)
            told_as.append(np.repeat(shares, view.times, axis=2))
        repeated = np.concatenate(told_as, axis=2)
        answering = Embed(flip=(self.flip,), noise=self.noise)
        bits = (answering.fillers(client).random(repeated.shape) < repeated).astype(np.uint8)
        # A sample is in one of the halves: it changes the bits of its class there.
        spent = Spending(flip=self.flip, bits=bits.size // 2, classes=classes, again=client.account is None)
        said = respond(bits, self.table(client, answering, bits.shape, spent))
        shape = np.array([(view.values.shape[1], view.times) for view in views])
        return Answer(bits=pack(said), views=shape.ravel(), spent=spent.sample)

    def repeatable(self, client: Client) -> bool:
        """Whether the answer is a function of seed, client and data: nothing secret is drawn for it."""
        return client.account is None and not client.live and self.noise == "simulated"

    def known_answer(self, client: Client, x: Tensor, y: NDArray[np.int64]) -> Answer:
        """The answer; of data that did not change since the last time it is not worked out again."""
        mark = hashlib.blake2b(x.contiguous().numpy().data, digest_size=16)
        mark.update(np.ascontiguousarray(y).data)
        key = (client.seed, client.id, self, tuple(x.shape), mark.digest())
        found = _ANSWERS.get(key)
        if found is None:
            found = self.answer(client, x, y)
            with _ADDING:
                if len(_ANSWERS) >= REMEMBERED:
                    del _ANSWERS[next(iter(_ANSWERS))]
                _ANSWERS[key] = found
        return found

    def table(self, client: Client, answering: Embed, shape: tuple[int, ...], spent: Spending) -> Bits:
        """What each bit says; a real device's answers are its own secret, the same for ever and paid for once."""
        if client.account is None or not self.flip:
            return answering.table(client, shape, self.flip)
        question = f"portrait {self.flip!r} {shape}"
        secret = client.account.answer_bytes(question, 16 * math.prod(shape), spent.sample)
        return answers_of_bytes(shape, self.flip, secret)

    def on_account(self, client: Client) -> float:
        """What a real device has spent in all; no bound where counts or bits are exact."""
        return client.account.epsilon if client.account is not None and self.counted else math.inf

    @property
    def counted(self) -> bool:
        """Whether the answer has a privacy loss that can be counted: noise on the counts, and every bit may lie."""
        return self.flip > 0 and self.privacy.counted

    def expects(self, known: Known) -> dict[str, Stat]:
        """Counts of the classes, and bits, eight to a byte, as many as samples of the server's shape give."""
        classes = classes_of(known.classes)
        views, bits = told_of(known.shape) if known.shape else (None, None)
        noise = 0.0 if self.privacy.epsilon is None else FARTHEST / self.privacy.epsilon
        return {
            "counts": Stat(low=0.0, high=known.train + noise, shape=(classes,)),
            "bits": Stat(low=0, high=255, shape=(bits and -(-2 * classes * bits // 8),)),
            "views": Stat(low=1, high=BITS, whole=True, shape=(views and 2 * views,)),
        }

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        return 0.1 * FORWARD_SHARE * train


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """The bits as they travel, the shape of each view, and the loss per sample."""

    bits: NDArray[np.uint8]
    views: NDArray[np.int64]
    spent: float


@lru_cache(maxsize=64)
def told_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many views there are of samples of that shape, and how many bits for every class and half in all of them."""
    views = views_of(torch.zeros(1, *shape))
    return len(views), sum(view.values.shape[1] * view.times for view in views)


@dataclass(frozen=True, kw_only=True, eq=False)
class Portrait:
    """What the server makes of an answer: counts [classes], and unbiased class means of two halves [2, classes, d]."""

    counts: Floats
    halves: Floats


def portraits_of(told: Mapping[str, Any], flip: float) -> tuple[Portrait, ...] | None:
    """The portraits that a reply's statistics hold, one for each view; None where they do not fit together."""
    counts = np.asarray(told["counts"], np.float64)
    views = np.asarray(told["views"], np.int64).reshape(-1)
    if not len(views) or len(views) % 2:
        return None
    sizes = views[::2] * views[1::2]
    bits = unpack(np.asarray(told["bits"], np.uint8))
    wanted = 2 * len(counts) * int(sizes.sum())
    if len(bits) - wanted not in range(8):
        return None
    whole = bits[:wanted].reshape(2, len(counts), -1).astype(np.float64)
    found, first = [], 0
    for values, times in views.reshape(-1, 2).tolist():
        shaped = whole[:, :, first : first + values * times].reshape(2, len(counts), values, times)
        found.append(Portrait(counts=counts, halves=(shaped.mean(axis=3) - flip) / (1 - 2 * flip)))
        first += values * times
    return tuple(found)


HALVES = 2  # of real targets: a client's lower ones and its higher ones are described as two classes are


def classes_of(classes: int) -> int:
    """How many classes are described."""
    return classes or HALVES


def classes_in(view: Samples) -> NDArray[np.int64]:
    """The class of every sample; of real targets, whether it is above the client's own median.

    What makes a target high is then compared as what makes a class: clients who disagree about it are no flock.
    """
    labels = view.labels()
    if view.dataset.classes:
        return labels.astype(np.int64)
    if not len(labels):
        return np.zeros(0, np.int64)
    one_each = labels.reshape(len(labels), -1).mean(axis=1)
    return np.asarray(one_each > np.median(one_each), np.int64)


def halves_by_themselves(x: Tensor) -> NDArray[np.int64]:
    """The half that every sample is in by its own values: one more or less leaves the others where they are.

    Of a random half of all samples that is not so, and one sample would change the bits of every class.
    """
    marks = [hashlib.blake2b(sample.tobytes(), digest_size=1).digest()[0] for sample in x.numpy()]
    return np.array(marks, np.int64) % 2


def standardised(client: Client) -> Tensor:
    """The client's inputs with mean 0 and deviation 1, about: as the data set's scale makes them, else from [0, 1].

    Numbers that nobody scaled (a text's frequencies) may have any size: there every sample is brought to one length.
    """
    x, _ = client.train.tensors()
    if client.train.dataset.scale is not None:
        return x.float()
    if client.train.dataset.x.dtype == torch.uint8:
        return (x - 0.5) / 0.3
    rms = x.float().flatten(1).square().mean(dim=1).sqrt()
    return x.float() / rms.clamp(min=1e-12).view(-1, *[1] * (x.dim() - 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """One way of looking at samples: values [samples, d], and how often each mean is told."""

    values: Floats
    times: int


def views_of(x: Tensor) -> tuple[View, ...]:
    """What is told of standardised samples; of pictures in two ways, as each sees what the other cannot.

    Values and edges show brightness, colours and style; strokes show what is drawn where things are bright on dark as
    often as dark on bright (house numbers), so that the values of a class cancel.
    """
    plain = described(x)
    first = View(values=plain, times=max(1, BITS // plain.shape[1]))
    if x.dim() != 4 or min(x.shape[-2:]) < CELLS:
        return (first,)
    drawn = strokes(x)
    return (first, View(values=drawn, times=max(1, STROKE_BITS // drawn.shape[1])))


def strokes(x: Tensor) -> Floats:
    """How much of a picture's gradients goes in each of 8 directions in its 4 x 4 parts (Dalal and Triggs, 2005).

    A direction and its opposite are one, a gradient between two directions counts for both by its nearness, and every
    picture is brought to the same total length: sqrt(values) / 2, which fills the range that is told.
    """
    across, down = gradients(x)
    place = torch.atan2(down, across) / torch.pi % 1.0 * DIRECTIONS
    lower = place.floor()
    length, rest = (across**2 + down**2).sqrt(), place - lower
    nearest = lower.long() % DIRECTIONS
    by_direction = torch.zeros(len(x), DIRECTIONS, *x.shape[2:])
    by_direction.scatter_(1, nearest, length * (1 - rest))
    by_direction.scatter_(1, (nearest + 1) % DIRECTIONS, length * rest)
    whole = torch.nn.functional.adaptive_avg_pool2d(by_direction, CELLS).flatten(1)
    scaled = whole / (whole.norm(dim=1, keepdim=True) + 1e-3) * (whole.shape[1] ** 0.5 / 2)
    return np.asarray((scaled - USUAL_STROKE).numpy(), np.float64)


def gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    """Differences across and down of the mean over the channels, 0 along the border."""
    grey = x.mean(dim=1, keepdim=True)
    across = (grey[..., 1:-1, 2:] - grey[..., 1:-1, :-2]) / 2
    down = (grey[..., 2:, 1:-1] - grey[..., :-2, 1:-1]) / 2
    return torch.nn.functional.pad(across, (1, 1, 1, 1)), torch.nn.functional.pad(down, (1, 1, 1, 1))


def described(x: Tensor) -> Floats:
    """What is told of standardised samples: of a picture its values and its edges, averaged down; else the features.

    Edges, |gradient| of the mean over the channels, show things that are bright on dark here and dark on bright there,
    whose values cancel.
    """
    if x.dim() != 4 or min(x.shape[-2:]) < 3:
        flat = x.reshape(len(x), -1).float()
        if flat.shape[1] > BITS:
            flat = torch.nn.functional.adaptive_avg_pool1d(flat[:, None], BITS)[:, 0]
        return flat.numpy().astype(np.float64)
    side = (min(SIDE, x.shape[-2]), min(SIDE, x.shape[-1]))
    across, down = gradients(x)
    edges = (across**2 + down**2).sqrt() - USUAL_EDGE
    parts = [torch.nn.functional.adaptive_avg_pool2d(part, side).flatten(1) for part in (x, edges)]
    return torch.cat(parts, dim=1).numpy().astype(np.float64)


def class_means(x: Floats, labels: NDArray[np.int64], which: NDArray[np.bool_], classes: int) -> Floats:
    """The mean of every class over the chosen samples, [classes, d]; a class without any gets 0 everywhere."""
    means = np.zeros((classes, x.shape[1]))
    for label in np.unique(labels[which]):
        means[label] = x[which & (labels == label)].mean(axis=0)
    return means
