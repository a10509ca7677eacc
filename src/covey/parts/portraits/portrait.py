"""A client's classes as noisy bits from which anybody can compute unbiased distances.

    z_c = mean of x over one half of the client's samples of class c, moved into [0, 1]   (of each half separately)
    b_c = 1 with probability z_c, else 0, several times for each value                     (dithering)
    every bit is flipped with probability P                                                (randomised response)

(b - P) / (1 - 2 P) is then an unbiased estimate of z_c, and since the two halves share neither samples nor noise, the
product of their differences, <A_i - A_j, B_i - B_j>, is an unbiased estimate of the squared distance of two clients'
classes, however few samples and however much noise there are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.arrays import Array
from covey.core import Client, Known, Reply, Stat, Step, Task, step
from covey.data.types import Dataset, Indices, mark_of
from covey.data.types import View as Data
from covey.errors import UserError
from covey.parts.portraits.views import BITS, PortraitView, seen_together, views_of, views_of_each
from covey.parts.steps.embedding import (
    BitNoise,
    Bits,
    Embed,
    Spending,
    answers_of_bytes,
    packed_means,
    respond,
    unpack,
)
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.labels import label_counts
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.summaries import tell
from covey.settings import BelowHalf
from covey.training.models.encoders import as_numbers

REMEMBERED = 4096  # answers of simulated clients, some 15 kB each
_ANSWERS: WeakKeyDictionary[Dataset, dict[Hashable, Answer]] = WeakKeyDictionary()
_ADDING = Lock()
Views = tuple[PortraitView, ...]
RANGE = 1.5  # class means are told in the range of -1.5 to 1.5 standard deviations; finer than the values themselves
LEAST = 2.0  # samples that a class needs at a client to be compared: one in each half
ENOUGH = 8.0  # from here on more samples make the bits no more certain
FARTHEST = 50.0  # scales of Laplace noise above the truth that no count exceeds, but for a share of e^-50


@step(kind="query.portrait", of_labels=True)
class DescribeClasses(Step):
    """Asks for a portrait: counts of the labels, and noisy bits of every class's mean in two halves of the samples.

    flip: the probability with which a bit lies. privacy: of the counts. noise: "simulated" draws from the client's
    seeded stream, "opendp" from OpenDP's secure source, which a real device always does. Dithering and answers are
    drawn once, so that asking again tells nothing new about data that did not change.
    """

    flip: BelowHalf = 0.1
    privacy: Privacy = Privacy()
    noise: BitNoise = "simulated"

    told: ClassVar[tuple[str, ...]] = ("counts", "bits", "views")

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        return self.told_by(client)

    def cohort(self, clients: Sequence[Client], tasks: Sequence[Task]) -> list[Reply] | None:  # noqa: ARG002
        """The same for many clients, whose few small pictures are looked at together."""
        shape = tuple(clients[0].train.dataset.x.shape[1:])
        together = seen_together(shape, sum(len(client.train) for client in clients))
        if not together or not all(self.repeatable(client) for client in clients):
            return None
        views = self.looked_at(clients)
        return [self.told_by(client, views.get(client.id)) for client in clients]

    def told_by(self, client: Client, views: Views | None = None) -> Reply:
        """A client's portrait; of its samples' views, where these are known."""
        classes = classes_of(len(client.train.dataset.classes))
        if self.counted and not client.train.dataset.classes:
            raise UserError(
                "a portrait under noise needs classes: above or below a client's median, one sample can move all others"
            )
        y = classes_in(client.train)
        answer = self.known_answer(client, views) if self.repeatable(client) else self.answer(client)
        counts = label_counts(y, labels=classes, who=f"client {client.id}")
        if not self.counted:
            counts = in_two_units(counts, y, client.train.units())
        told, noisy = tell(client, self.privacy, counts, sensitivity=1.0)
        stats: dict[str, Any] = {"counts": np.maximum(noisy, 0.0), "bits": answer.bits, "views": answer.views}
        on_counts = float(told.get("epsilon", math.inf))
        stats["epsilon"] = on_counts + answer.spent if client.account is None else self.on_account(client)
        return Reply(id=client.id, size=1 if self.counted else len(y), stats=stats)

    def answer(self, client: Client, views: Views | None = None) -> Answer:
        """The noisy bits of every class's mean in two halves of the samples."""
        x, y = standardised(client), classes_in(client.train)
        classes = classes_of(len(client.train.dataset.classes))
        views = views or views_of(x)
        halves = (
            halves_by_themselves(x)
            if self.counted
            else halves_apart(y, client.train.units(), client.stream("halves"))
        )
        told_as = []
        for view in views:
            means = np.stack([class_means(view.values, y, halves == half, classes) for half in (0, 1)])
            shares = np.clip(means / (2 * RANGE) + 0.5, 0.0, 1.0)
            told_as.append(np.repeat(shares, view.times, axis=2))
        repeated = np.concatenate(told_as, axis=2)
        answering = _answering(self.flip, self.noise)
        bits = (answering.fillers(client).random(repeated.shape) < repeated).view(np.uint8)
        # A sample is in one of the halves: it changes the bits of its class there.
        spent = Spending(flip=self.flip, bits=bits.size // 2, classes=classes, again=client.account is None)
        said = respond(bits, self.table(client, answering, bits.shape, spent))
        shape = np.array([(view.values.shape[1], view.times) for view in views])
        return Answer(bits=packed_means(said), views=shape.ravel(), spent=spent.sample)

    def repeatable(self, client: Client) -> bool:
        """Whether the answer is a function of seed, client and data: nothing secret is drawn for it."""
        return client.account is None and not client.live and self.noise == "simulated"

    def known_answer(self, client: Client, views: Views | None = None) -> Answer:
        """The answer; of data that did not change since the last time it is not worked out again."""
        known, key = self.remembered(client)
        found = known.get(key)
        if found is None:
            found = self.answer(client, views)
            with _ADDING:
                if len(known) >= REMEMBERED:
                    del known[next(iter(known))]
                known[key] = found
        return found

    def remembered(self, client: Client) -> tuple[dict[Hashable, Answer], Hashable]:
        """The answers that are remembered for the client's data set, and what its own would be found by."""
        data, mark = mark_of(client.train)
        return _ANSWERS.setdefault(data, {}), (client.seed, client.id, self, mark)

    def looked_at(self, clients: Sequence[Client]) -> dict[int, Views]:
        """The views of the samples of those clients whose answers are not remembered."""
        found = {client.id: self.remembered(client) for client in clients}
        new = [client for client in clients if found[client.id][1] not in found[client.id][0]]
        views = views_of_each([standardised(client) for client in new]) if new else []
        return dict(zip([client.id for client in new], views, strict=True))

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

    def fits(self, told: Mapping[str, Any]) -> bool:
        """Whether the parts of an answer fit together."""
        return sizes_of(told) is not None

    def portraits(self, told: Mapping[str, Any]) -> tuple[Portrait, ...] | None:
        """The portraits that an answer makes."""
        return portraits_of(told, self.flip)

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
def _answering(flip: float, noise: BitNoise) -> Embed:
    """The settings of who lies and with what noise, read once and not for each of a million clients."""
    return Embed(flip=(flip,), noise=noise)


@lru_cache(maxsize=64)
def told_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many views there are of samples of that shape, and how many bits for every class and half in all of them."""
    views = views_of(torch.zeros(1, *shape))
    return len(views), sum(view.values.shape[1] * view.times for view in views)


@dataclass(frozen=True, kw_only=True, eq=False)
class Portrait:
    """What the server makes of an answer: counts [classes], and unbiased class means of two halves [2, classes, d].

    enough: samples from which on more of them make the means no more certain.
    """

    counts: Array
    halves: Array
    enough: float = ENOUGH

    @property
    def weights(self) -> Array:
        """How much each class counts in a comparison; nothing where it has no sample in one of the halves."""
        return np.where(self.counts >= LEAST, np.minimum(self.counts, self.enough), 0.0)


def sizes_of(told: Mapping[str, Any]) -> list[tuple[int, int]] | None:
    """The values of each view and how often they are told; None where counts, bits and views do not fit together."""
    views = np.asarray(told["views"], np.int64).reshape(-1)
    if not len(views) or len(views) % 2:
        return None
    wanted = 2 * len(told["counts"]) * int((views[::2] * views[1::2]).sum())
    spare = 8 * np.asarray(told["bits"]).size - wanted
    return [(int(v), int(t)) for v, t in views.reshape(-1, 2)] if spare in range(8) else None


def portraits_of(told: Mapping[str, Any], flip: float) -> tuple[Portrait, ...] | None:
    """The portraits that a reply's statistics hold, one for each view; None where they do not fit together."""
    views = sizes_of(told)
    if views is None:
        return None
    counts = np.asarray(told["counts"], np.float64)
    wanted = 2 * len(counts) * sum(values * times for values, times in views)
    bits = unpack(np.asarray(told["bits"], np.uint8))
    whole = bits[:wanted].reshape(2, len(counts), -1).astype(np.float64)
    found, first = [], 0
    for values, times in views:
        shaped = whole[:, :, first : first + values * times].reshape(2, len(counts), values, times)
        found.append(Portrait(counts=counts, halves=(shaped.mean(axis=3) - flip) / (1 - 2 * flip)))
        first += values * times
    return tuple(found)


HALVES = 2  # of real targets: a client's lower and higher ones are described as two classes


def classes_of(classes: int) -> int:
    """How many classes are described."""
    return classes or HALVES


def classes_in(view: Data) -> NDArray[np.int64]:
    """The class of every sample; of real targets, whether it is above the client's own median.

    What makes a target high is then compared as what makes a class: clients who disagree about it are no cluster.
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


def halves_apart(
    labels: NDArray[np.int64], units: Indices | None, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The half that every sample is in, drawn at random; samples of one unit (`data.together`) stay together.

    Every second one of a class's units is in the other half: what is peculiar to one recording is then noise, as what
    is peculiar to one sample is, and is not taken for what the client's class is like.
    """
    if units is None:
        return np.asarray(rng.permutation(len(labels)) % 2, np.int64)
    pairs, of = np.unique(np.stack([labels, units]), axis=1, return_inverse=True)
    by_class = np.lexsort((rng.permutation(pairs.shape[1]), pairs[0]))
    halves = np.empty(pairs.shape[1], np.int64)
    halves[by_class] = np.arange(len(halves)) % 2
    return halves[of.reshape(-1)]


def in_two_units(counts: Array, labels: NDArray[np.int64], units: Indices | None) -> Array:
    """The counts, where a class of a single unit counts as one sample: it has one half only, and is not compared."""
    if units is None:
        return counts
    each = np.bincount(np.unique(np.stack([labels, units]), axis=1)[0], minlength=len(counts))
    return np.where(each < LEAST, np.minimum(counts, each), counts)


def standardised(client: Client) -> Tensor:
    """The client's inputs with mean 0 and deviation 1, about: as the data set's scale makes them, else from [0, 1].

    Numbers that nobody scaled (a text's frequencies) may have any size: there every sample is brought to one length.
    """
    x = as_numbers(client.train.tensors()[0])
    if client.train.dataset.scale is not None:
        return x.float()
    if client.train.dataset.x.dtype == torch.uint8:
        return (x - 0.5) / 0.3
    rms = x.float().flatten(1).square().mean(dim=1).sqrt()
    return x.float() / rms.clamp(min=1e-12).view(-1, *[1] * (x.dim() - 1))


def class_means(x: Array, labels: NDArray[np.int64], which: NDArray[np.bool_], classes: int) -> Array:
    """The mean of every class over the chosen samples, [classes, d]; a class without any gets 0 everywhere."""
    means = np.zeros((classes, x.shape[1]))
    for label in np.unique(labels[which]):
        means[label] = x[which & (labels == label)].mean(axis=0)
    return means
