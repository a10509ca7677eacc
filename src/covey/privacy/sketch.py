"""A client's classes under a small privacy loss that holds for every sample: noisy class sums, told once.

    u = P x / |P x|                                  a sample: its description, projected to a few numbers, of length 1
    T = (sum of u over class c, n_c / 4) for all c   one table; a sample more or less moves it by s = sqrt(1 + 1/16)
    told: T + N(0, (z s)^2)                          one Gaussian mechanism, z found for epsilon and delta

The server takes class means m = sum / n of it, whose noise it knows: v = (z s / n)^2 in each number by the mechanism,
and (1 - |m|^2) / (d (n - 1)) because the samples are a sample. With g drawn by the server, A = m + sqrt(v) g and
B = m - sqrt(v) g have noise that is independent of each other's, so that <A_i - A_j, B_i - B_j> is an unbiased squared
distance, as it is with two halves of the data, of which each would have twice the noise. All of that is computed from
what was told, and costs nothing more.
"""

import hashlib
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from covey.arrays import Array
from covey.core import Client, Known, Reply, Stat, Step, Task, step
from covey.core.privacy_loss import Loss
from covey.errors import UserError
from covey.parts.portraits.portrait import Portrait, classes_in, standardised
from covey.parts.portraits.views import views_of
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.gaussian_noise import gaussian, gaussian_of_bytes
from covey.parts.steps.labels import label_counts
from covey.privacy.accountant import Sampling, noise_for
from covey.settings import Count, Epsilon, Share

COUNTED_AS = 0.25  # of a sample's length: what its count is worth in the table
THINNED = 8  # pairs A, B that are drawn of one table; more bring nothing
CERTAIN = 2.0  # standard deviations of its noise that a count must have for its class to be compared
FEWEST = 4.0  # and that many samples
FARTHEST = 12.0  # standard deviations that no noise is away: one number in 10^32 is


@step(kind="query.sketch", of_labels=True, passes=0.1 * FORWARD_SHARE)
class SketchClasses(Step):
    """Asks for class sums and counts under Gaussian noise: (epsilon, delta) for one sample, whatever is computed of it.

    A client answers once; while its data stay as they are it gives the same answer again, which costs nothing.

    Args:
        epsilon: privacy loss of one sample.
        delta: the chance that it is larger.
        dims: numbers that every sample is projected to.
    """

    epsilon: Epsilon = 1.0
    delta: Share = 5e-6
    dims: Count = 64

    told: ClassVar[tuple[str, ...]] = ("counts", "sums")
    counted: ClassVar[bool] = True

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        classes = len(client.train.dataset.classes)
        if not classes:
            raise UserError(
                f"client {client.id}: a sketch under noise needs classes: a target is high only beside others"
            )
        table = class_table(standardised(client), classes_in(client.train), classes, self.dims)
        noisy = self.told_before(client, table)
        return Reply(id=client.id, size=1, stats={"sums": noisy[:, :-1], "counts": noisy[:, -1] / COUNTED_AS})

    def told_before(self, client: Client, table: Array) -> Array:
        """The noisy table: drawn once for these data, at a real device from its secret and on its account."""
        if client.account is not None:
            secret = client.account.answer_bytes(f"sketch {self!r}", 32 * table.size, self.loss)
            return table + self.scale * gaussian_of_bytes(secret).reshape(table.shape)
        mark = hashlib.blake2b(np.ascontiguousarray(table).data, digest_size=16).hexdigest()
        known = client.state.get("sketch", {})
        if known.get("mark") != mark:
            rng = client.stream("sketch", mark)
            noisy = gaussian(torch.from_numpy(table), self.scale, rng).numpy()
            known = client.state["sketch"] = {"mark": mark, "told": noisy}
        return np.asarray(known["told"])

    @property
    def noise(self) -> float:
        """z, in lengths that a sample moves the table by."""
        return noise_for(self.epsilon, self.delta, sampling=Sampling(), times=1)

    @property
    def scale(self) -> float:
        """Standard deviation of the noise on every number of the table."""
        return self.noise * math.hypot(1.0, COUNTED_AS)

    @property
    def loss(self) -> Loss:
        """What one answer costs: a sum of samples with such noise, of which none is left out."""
        return Loss(what="embeddings", mechanism="steps", noise=self.noise)

    def fits(self, told: Mapping[str, Any]) -> bool:
        """Whether the parts of an answer fit together."""
        return np.ndim(told["sums"]) == 2 and np.shape(told["counts"]) == np.shape(told["sums"])[:1]

    def portraits(self, told: Mapping[str, Any]) -> tuple[Portrait, ...]:
        """The portrait that an answer is worth."""
        sums, counts = np.asarray(told["sums"], np.float64), np.asarray(told["counts"], np.float64)
        dims, samples = sums.shape[1], np.maximum(counts, 1.0)
        means = sums / samples[:, None]
        by_noise = (self.scale / samples) ** 2
        length = np.clip((means**2).sum(axis=1) - dims * by_noise, 0.0, 1.0)
        spread = by_noise + (1.0 - length) / (dims * np.maximum(samples - 1.0, 1.0))
        rng = np.random.default_rng(np.frombuffer(hashlib.blake2b(sums.tobytes()).digest(), np.uint64))
        apart = np.sqrt(spread)[:, None, None] * rng.standard_normal((len(sums), THINNED, dims))
        pair = np.stack([means[:, None] + apart, means[:, None] - apart]) / math.sqrt(THINNED)
        is_sure = counts > max(FEWEST, CERTAIN * self.scale / COUNTED_AS)
        halves = pair.reshape(2, len(sums), -1)
        return (Portrait(counts=np.where(is_sure, counts, 0.0), halves=halves, enough=math.inf),)

    def expects(self, known: Known) -> dict[str, Stat]:
        """A sum of unit vectors is no longer than their number; noise may be added to it."""
        far = FARTHEST * self.scale
        return {
            "sums": Stat(low=-known.train - far, high=known.train + far, shape=(known.classes, None)),
            "counts": Stat(
                low=-far / COUNTED_AS, high=known.train + far / COUNTED_AS, shape=(known.classes,)
            ),
        }


def class_table(x: torch.Tensor, labels: NDArray[np.int64], classes: int, dims: int) -> Array:
    """For every class the sum of its samples' unit vectors, and their number times `COUNTED_AS`: [classes, d + 1]."""
    values = views_of(x, with_strokes=False)[0].values
    values = values @ projection(values.shape[1], min(dims, values.shape[1]))
    length = np.linalg.norm(values, axis=1, keepdims=True)
    finite = (length > 0) & np.isfinite(
        length
    )  # by another scale a sample may be endless, which no noise hides
    units = np.divide(values, length, out=np.zeros_like(values), where=finite)
    table = np.zeros((classes, units.shape[1] + 1))
    np.add.at(table[:, :-1], labels, units)
    table[:, -1] = COUNTED_AS * label_counts(labels, labels=classes, who="a client")
    return table


@lru_cache(maxsize=8)
def projection(values: int, dims: int) -> Array:
    """Orthonormal directions, the same for everybody and about nobody's data: [values, dims]."""
    drawn = np.random.default_rng(64).standard_normal((values, dims))
    return np.asarray(np.linalg.qr(drawn)[0])
