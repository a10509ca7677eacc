"""What the samples of each label look like on average, in a few numbers, with differential privacy."""

import secrets
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.core import Client, Known, Reply, Stat, Step, Task, step, stream
from covey.parts.steps.labels import label_counts
from covey.parts.steps.privacy import Privacy, add_noise
from covey.parts.steps.summaries import booked, label_space
from covey.settings import Count
from covey.training.models.encoders import as_numbers

# A sample adds at most 1 to the counts, 1 to the absolute sum of its description and 1 to its squares.
SENSITIVITY = 3.0
SKETCHING_SHARE = 0.01  # describing a sample costs about a hundredth of training on it


@step(kind="query.class-means", of_labels=True, passes=SKETCHING_SHARE)
class ClassMeans(Step):
    """For each label the number of samples, the sum of their descriptions and of their squares, of two halves.

    A description is `size` random projections of the sample, the same for every client, squashed so that their absolute
    sum is at most 1. The mean description of a label shows how its samples look, and no single one. Every sample is in
    one of two halves, drawn at random: what is guessed from one can be tried on the other.

    privacy: what protects it; one sample changes the whole table by at most 3.
    labels: size of the label space; none takes the data set's classes.
    size: numbers per description.
    """

    privacy: Privacy = Privacy()
    labels: int | None = None
    size: Count = 32

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        labels = label_space(client, self.labels)
        x, y = client.train.tensors()
        label_counts(
            client.train.labels(), labels=labels, who=f"client {client.id}"
        )  # refuses unknown labels
        # drawn one by one, and where the server knows the run's seed from chance that it does not know: else a sample
        # that is missing would move all behind it to others' halves
        rng = np.random.default_rng(secrets.randbits(128)) if client.live else client.rng
        halves = rng.integers(0, 2, len(y))
        table = table_of_classes(sketches(as_numbers(x).numpy(), self.size), y.numpy(), halves, labels)
        privacy = self.privacy
        if client.live and privacy.noise == "simulated":
            privacy = replace(privacy, noise="opendp")
        total = booked(client, privacy)
        noisy = add_noise(table, sensitivity=SENSITIVITY, privacy=privacy, rng=client.rng)
        told = {"epsilon": total} if privacy.counted else {}
        return Reply(id=client.id, stats={"table": noisy, **told})

    def expects(self, known: Known) -> dict[str, Stat]:
        """For each half one row per label: samples, sums, squares."""
        return {"table": Stat(shape=(2, self.labels or known.classes, self.size + 2))}


def sketches(x: NDArray[np.floating], size: int) -> Array:
    """Random projections of each sample, squashed into [-1/size, 1/size]: their absolute sum is at most 1.

    A NaN, which a server's scale can make of one certain sample, counts as 0: otherwise the whole sum would be NaN.
    """
    flat = x.reshape(len(x), -1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        squashed = np.tanh(flat @ directions(flat.shape[1], size) / np.sqrt(flat.shape[1])) / size
    return np.asarray(np.nan_to_num(squashed))


@lru_cache(maxsize=4)  # every client asks for the same
def directions(inputs: int, size: int) -> Array:
    """Public and the same everywhere: no seed of a run, nothing to agree on."""
    return stream(0, "sketch", inputs, size).standard_normal((inputs, size))


def table_of_classes(sketch: Array, y: NDArray[np.generic], halves: NDArray[np.int64], labels: int) -> Array:
    """[2, labels, 1 + size + 1]: samples, sum of descriptions, sum of size * squared lengths (each at most 1)."""
    size = sketch.shape[1]
    table = np.zeros((2, labels, size + 2))
    cell = (halves, y.astype(np.int64))
    np.add.at(table[:, :, 0], cell, 1.0)
    np.add.at(table[:, :, 1:-1], cell, sketch)
    np.add.at(table[:, :, -1], cell, size * (sketch**2).sum(axis=1))
    return table
