"""What a HACCS client tells of its data: histograms of labels or targets P(y), of features P(X|y), of both P(X, y)."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.core import SHARE, Client, Known, Reply, Stat, Step, Task, step
from covey.data.types import unscaled
from covey.errors import Refused, UserError
from covey.parts.steps.labels import checked_labels, label_counts
from covey.parts.steps.privacy import Privacy, add_noise, present, shares, spend
from covey.settings import Count, Positive, Range

MOST_NUMBERS = 10_000_000  # in one summary
CHUNK = 256  # samples whose features are binned at a time
BINNING_SHARE = 0.01  # binning a sample costs about a hundredth of training on it


HistogramBins = Annotated[int, Range(2)]


@step(kind="query.labels", of_labels=True)
class LabelSummary(Step):
    """P(y): the client's label histogram as shares of the agreed label space, `privacy` deciding on the noise.

    labels: size of the label space; None takes the data set's classes. Asked with `tolerance`, a client answers
    with a summary only if its data moved by more than that (total variation) since its last one; a real device
    with noise always answers, because silence would tell, unpaid for, that exact counts did not move.
    """

    privacy: Privacy = Privacy()
    labels: Count | None = None

    def __call__(self, client: Client, task: Task) -> Reply:
        labels = label_space(client, self.labels)
        counts = label_counts(client.train.labels(), labels=labels, who=f"client {client.id}")
        return shares_told(client, task, self.privacy, counts)

    def expects(self, known: Known) -> dict[str, Stat]:
        """Shares of the labels."""
        return {"shares": replace(SHARE, shape=(self.labels or known.classes,), total=(1.0, 1.0))}


@dataclass(frozen=True, kw_only=True)
class Binned(Step):
    """A histogram with `bins` over the agreed [low, high], `privacy` deciding on the noise."""

    privacy: Privacy = Privacy()
    bins: HistogramBins = 20
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UserError(f"low is {self.low!r}; allowed: below high, which is {self.high!r}")


@step(kind="query.targets", of_labels=True)
class TargetSummary(Binned):
    """P(y) of a regression (HACCS, footnote 1): a histogram of the targets, `bins` over the agreed [low, high].

    Targets outside the range count in the outermost bins, so that the range tells nothing about anybody's data. One
    sample moves one count, as with labels.
    """

    def __call__(self, client: Client, task: Task) -> Reply:
        y = client.train.labels().astype(np.float64).reshape(-1)
        if not len(y):
            raise UserError(f"client {client.id} has no training data, so it has no summary.")
        place = bin_of(y, self.bins, self.low, self.high)
        counts = np.bincount(place, minlength=self.bins).astype(np.float64)
        return shares_told(client, task, self.privacy, counts)

    def expects(self, known: Known) -> dict[str, Stat]:  # noqa: ARG002
        """Shares of the bins."""
        return {"shares": replace(SHARE, shape=(self.bins,), total=(1.0, 1.0))}


@step(kind="query.features", of_labels=True, passes=BINNING_SHARE)
class FeatureSummary(Binned):
    """P(X|y): for each label a histogram of all feature values of its samples, `bins` over [low, high].

    Images are taken before their normalisation, so that their range is [0, 1]. One sample moves as many counts
    as it has values, and the noise is scaled by that, or by `bound`, to which its contribution is then scaled down.
    With noise, a label counts as present when its total stands out of the noise.
    """

    labels: Count | None = None
    bound: Positive | None = None

    def __call__(self, client: Client, task: Task) -> Reply:
        x = raw_features(client)
        counts = feature_counts(
            x,
            client.train.labels(),
            labels=label_space(client, self.labels, self.bins),
            bins=self.bins,
            low=self.low,
            high=self.high,
            bound=self.bound,
            who=f"client {client.id}",
        )
        if not _worth_telling(client, task, self.privacy, counts):
            return Reply(id=client.id)
        sensitivity = feature_sensitivity(x, self.bound)
        told, noisy = tell(client, self.privacy, counts, sensitivity=sensitivity)
        has = present(noisy, sensitivity=sensitivity, privacy=self.privacy)
        return Reply(id=client.id, stats={"shares": shares(noisy), "has": has, **told})

    def expects(self, known: Known) -> dict[str, Stat]:
        """Shares of the bins for each label, and which labels there are."""
        labels = self.labels or known.classes
        return {
            "shares": replace(SHARE, shape=(labels, self.bins), total=(1.0, 1.0)),
            "has": replace(SHARE, shape=(labels,)),
        }


@step(kind="query.joint", of_labels=True, passes=BINNING_SHARE)
class JointSummary(Binned):
    """P(X, y): one histogram over label and feature value, to which every sample adds one unit in all.

    A sample's unit is spread over the bins of its values, so one sample moves the table by 1, as it does P(y), and not
    by as many counts as it has values (784 for MNIST): the noise of P(y) protects what P(X|y) would show.
    `bins` over [low, high], as in `FeatureSummary`.
    """

    labels: Count | None = None

    def __call__(self, client: Client, task: Task) -> Reply:
        counts = feature_counts(
            raw_features(client),
            client.train.labels(),
            labels=label_space(client, self.labels, self.bins),
            bins=self.bins,
            low=self.low,
            high=self.high,
            bound=1.0,
            who=f"client {client.id}",
        ).reshape(-1)
        return shares_told(client, task, self.privacy, counts)

    def expects(self, known: Known) -> dict[str, Stat]:
        """Shares of all bins of all labels together."""
        places = (self.labels or known.classes) * self.bins
        return {"shares": replace(SHARE, shape=(places,), total=(1.0, 1.0))}


def shares_told(client: Client, task: Task, privacy: Privacy, counts: Array) -> Reply:
    """The counts as shares under noise, where one sample moves them by 1; nothing where they are not worth telling."""
    if not _worth_telling(client, task, privacy, counts):
        return Reply(id=client.id)
    told, noisy = tell(client, privacy, counts, sensitivity=1.0)
    return Reply(id=client.id, stats={"shares": shares(noisy), **told})


def raw_features(client: Client) -> NDArray[np.floating]:
    """The client's inputs as they were before normalisation (pixels in [0, 1])."""
    x, _ = client.train.tensors()
    scale = client.train.dataset.scale
    return (x if scale is None else unscaled(x, scale)).numpy()


def label_space(client: Client, labels: int | None, bins: int = 1) -> int:
    """The number of labels that all clients agreed on."""
    space = len(client.train.dataset.classes) if labels is None else labels
    if client.live and space < len(
        client.train.dataset.classes
    ):  # an error message would name a label that is there
        raise Refused(f"a summary of {space} labels is asked for; this site's data have more classes")
    if space * bins > MOST_NUMBERS:
        raise UserError(
            f"a summary of {space * bins:,} numbers is asked for; at most {MOST_NUMBERS:,} are allowed"
        )
    if space < 1:
        raise UserError("a summary by label needs data with classes, or the number of labels given.")
    return space


def _worth_telling(client: Client, task: Task, privacy: Privacy, counts: Array) -> bool:
    """Whether the server has no summary yet, asks for a new one, or the data moved enough since the last.

    On a real device the answer to that is exact, and a search over tolerances would find the counts.
    """
    if client.live and privacy.counted:
        return True
    last = client.state.get("summary")
    tolerance = task.args.get("tolerance")
    if last is None or tolerance is None or last.shape != counts.shape:
        return True
    moved = 0.5 * np.abs(counts / counts.sum() - last / last.sum()).sum()
    return bool(moved > tolerance)


def tell(
    client: Client, privacy: Privacy, counts: Array, *, sensitivity: float
) -> tuple[dict[str, Any], Array]:
    """Book the privacy loss, add the noise, and remember on the device (only) what the summary was made of."""
    if client.live and privacy.noise == "simulated":
        privacy = replace(privacy, noise="opendp")
    total = booked(client, privacy)
    noisy = add_noise(counts, sensitivity=sensitivity, privacy=privacy, rng=client.rng)
    client.state["summary"] = counts
    return ({"epsilon": total} if privacy.counted else {}), noisy


def booked(client: Client, privacy: Privacy) -> float:
    """Book one summary where the client keeps its account; on a real device that is on disk before it is told."""
    if client.account is None:
        return spend(client.state, privacy)
    if not privacy.counted or privacy.epsilon is None:
        return client.account.epsilon
    return client.account.spend(privacy.epsilon, budget=privacy.budget)


def feature_counts(
    x: NDArray[np.floating],
    y: NDArray[np.generic],
    *,
    labels: int,
    bins: int,
    low: float,
    high: float,
    bound: float | None = None,
    who: str = "the client",
) -> Array:
    """For each label a histogram [labels, bins] of all feature values of its samples, over [low, high].

    Values outside the range count in the outermost bins. With `bound`, one sample adds at most that much to
    the whole table: each of its values counts bound / features instead of 1.
    """
    known = checked_labels(y, labels, who)
    table = np.zeros(labels * bins)
    for start in range(0, len(x), CHUNK):
        part = x[start : start + CHUNK].reshape(len(x[start : start + CHUNK]), -1)
        place = bin_of(part, bins, low, high) + known[start : start + CHUNK, None] * bins
        table += np.bincount(place.ravel(), minlength=len(table))
    return table.reshape(labels, bins) * (feature_sensitivity(x, bound) / feature_count(x))


def bin_of(values: NDArray[np.floating], bins: int, low: float, high: float) -> NDArray[np.int64]:
    """The bin of each value; the first for NaN: an error would tell that there is one."""
    with np.errstate(over="ignore", invalid="ignore"):
        place = np.floor((values - low) * (bins / (high - low)))
    there = np.nan_to_num(place, nan=0.0, posinf=bins, neginf=0.0).clip(0, bins - 1)
    return np.asarray(there, np.int64)


def feature_count(x: NDArray[np.floating]) -> int:
    """How many feature values one sample has (pixels times channels)."""
    return int(np.prod(x.shape[1:]))


def feature_sensitivity(x: NDArray[np.floating], bound: float | None) -> float:
    """How much one sample changes a feature table (L1): all its values, or the bound if that is less."""
    return float(feature_count(x)) if bound is None else min(float(bound), float(feature_count(x)))
