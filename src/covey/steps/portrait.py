"""A client's classes as noisy bits from which anybody can compute unbiased distances.

    z_c = mean of x over one half of the client's samples of class c, moved into [0, 1]   (both halves, each for itself)
    b_c = 1 with probability z_c, else 0, several times for each value                     (dithering)
    every bit is flipped with probability P                                                (randomised response)

(b - P) / (1 - 2 P) is then an unbiased estimate of z_c, and since the two halves share neither samples nor noise, the
product of their differences, <A_i - A_j, B_i - B_j>, is an unbiased estimate of the squared distance of two clients'
classes, however few samples and however much noise there is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core import Client, Reply, Step, Task
from covey.data.types import View
from covey.ranges import BelowHalf
from covey.settings import validated
from covey.statistics import Known, Stat
from covey.steps.embedding import BitNoise, Embed, Spending, pack, respond, unpack
from covey.steps.evaluate import FORWARD_SHARE
from covey.steps.privacy import Privacy
from covey.steps.summaries import label_counts, tell

Floats = NDArray[np.float64]

BITS = 4096  # for every class and half, about
SIDE = 16  # of the pictures that are described; larger ones are averaged down to it
RANGE = 1.5  # class means are told in the range of -1.5 to 1.5 standard deviations; finer than the values themselves
USUAL_EDGE = 0.5  # of standardised pictures: the middle of what edges are told as


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

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        classes = classes_of(len(client.train.dataset.classes))
        x, y = described(standardised(client)), classes_in(client.train)
        halves = client.stream("halves").permutation(len(y)) % 2
        means = np.stack([class_means(x, y, halves == half, classes) for half in (0, 1)])
        shares = np.clip(means / (2 * RANGE) + 0.5, 0.0, 1.0)
        repeated = np.repeat(shares, repeats(x.shape[1]), axis=2)
        answering = Embed(flip=(self.flip,), noise=self.noise)
        bits = (answering.fillers(client).random(repeated.shape) < repeated).astype(np.uint8)
        said = respond(bits, answering.table(client, bits.shape, self.flip))
        counts = label_counts(y, labels=classes, who=f"client {client.id}")
        told, noisy = tell(client, self.privacy, counts, sensitivity=1.0)
        # A sample is in one of the halves: it changes the bits of its class there, whose answers may be seen twice.
        spent = Spending(flip=self.flip, bits=bits.size // 2, classes=classes, again=True).sample
        stats: dict[str, Any] = {"counts": np.maximum(noisy, 0.0), "bits": pack(said), "values": x.shape[1]}
        stats["epsilon"] = spent + float(told.get("epsilon", math.inf))
        return Reply(id=client.id, size=len(y), stats=stats)

    def expects(self, known: Known) -> dict[str, Stat]:
        """Counts of the classes, and bits, eight to a byte."""
        return {
            "counts": Stat(low=0.0, shape=(classes_of(known.classes),)),
            "bits": Stat(low=0, high=255, shape=(None,)),
            "values": Stat(low=1, high=BITS, whole=True),
        }

    def work(self, train: int, test: int) -> float:  # noqa: ARG002
        return 0.1 * FORWARD_SHARE * train


@dataclass(frozen=True, kw_only=True, eq=False)
class Portrait:
    """What the server makes of an answer: counts [classes], and unbiased class means of two halves [2, classes, d]."""

    counts: Floats
    halves: Floats


def portrait_of(told: Mapping[str, Any], flip: float) -> Portrait | None:
    """The portrait that a reply's statistics hold; None where they do not fit together."""
    counts = np.asarray(told["counts"], np.float64)
    values = int(told["values"])
    times = repeats(values)
    bits = unpack(np.asarray(told["bits"], np.uint8))
    wanted = 2 * len(counts) * values * times
    if len(bits) - wanted not in range(8):
        return None
    shaped = bits[:wanted].reshape(2, len(counts), values, times).astype(np.float64)
    return Portrait(counts=counts, halves=(shaped.mean(axis=3) - flip) / (1 - 2 * flip))


HALVES = 2  # of real targets: a client's lower ones and its higher ones are described as two classes are


def classes_of(classes: int) -> int:
    """How many classes are described."""
    return classes or HALVES


def classes_in(view: View) -> NDArray[np.int64]:
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


def standardised(client: Client) -> Tensor:
    """The client's inputs with mean 0 and deviation 1, about: as the data set's scale makes them, else from [0, 1]."""
    x, _ = client.train.tensors()
    is_unit = client.train.dataset.scale is None and client.train.dataset.x.dtype == torch.uint8
    return (x - 0.5) / 0.3 if is_unit else x.float()


def repeats(values: int) -> int:
    """How often each value is told: a small picture has few values, which need more bits each."""
    return max(1, BITS // values)


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
    grey = x.mean(dim=1, keepdim=True)
    across = (grey[..., 1:-1, 2:] - grey[..., 1:-1, :-2]) / 2
    down = (grey[..., 2:, 1:-1] - grey[..., :-2, 1:-1]) / 2
    edges = torch.nn.functional.pad((across**2 + down**2).sqrt(), (1, 1, 1, 1)) - USUAL_EDGE
    parts = [torch.nn.functional.adaptive_avg_pool2d(part, side).flatten(1) for part in (x, edges)]
    return torch.cat(parts, dim=1).numpy().astype(np.float64)


def class_means(x: Floats, labels: NDArray[np.int64], which: NDArray[np.bool_], classes: int) -> Floats:
    """The mean of every class over the chosen samples, [classes, d]; a class without any gets 0 everywhere."""
    means = np.zeros((classes, x.shape[1]))
    for label in np.unique(labels[which]):
        means[label] = x[which & (labels == label)].mean(axis=0)
    return means
