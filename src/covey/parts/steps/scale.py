"""Mean and deviation to standardise inputs by where nobody sees all data: clients tell sums, with noise if wanted."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from covey.core import Client, Known, Reply, Stat, Step, Task, step
from covey.data.types import Scale
from covey.errors import UserError
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.summaries import raw_features, tell

SUMMING_SHARE = 0.01  # adding a sample up costs about a hundredth of training on it
NARROWEST = 1e-6  # a channel that is the same everywhere is not divided by zero


@step(kind="query.scale", passes=SUMMING_SHARE)
class TellScale(Step):
    """Per channel (of vectors: per feature) the sums of the values and of their squares, and the number of samples.

    Pictures are taken before their normalisation, in [0, 1]; a sample adds its mean value and its mean square in each
    channel. One sample so changes a table of C channels by at most 2 C + 1, which scales the noise. Other inputs are
    taken as they are without noise; with noise they are cut off at `low` and `high`, which tell nothing of the data.

    privacy: what protects the sums; without an epsilon they are exact.
    low: of the agreed range of inputs that are not pictures.
    high: of the same range.
    """

    privacy: Privacy = Privacy()
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise UserError("low and high of a scale go together")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise UserError(f"low is {self.low!r}; allowed: below high, which is {self.high!r}")

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        x = raw_features(client).astype(np.float64)
        low, high = self.range_of(str(client.train.dataset.x.dtype))
        values = x.reshape(*x.shape[:2], -1)
        # what is no number counts as the lowest: to fail would tell of it
        if self.privacy.epsilon is not None:
            values = (np.nan_to_num(values, nan=low).clip(low, high) - low) / (high - low)
        sums, squares = (part.mean(axis=2).sum(axis=0) for part in (values, values**2))
        table = np.concatenate([[float(len(x))], sums, squares])
        told, noisy = tell(client, self.privacy, table, sensitivity=len(table))
        return Reply(id=client.id, size=len(x), stats={"sums": noisy, **told})

    def range_of(self, kind: str) -> tuple[float, float]:
        """The agreed range of inputs of that type."""
        if kind == "torch.uint8":
            return 0.0, 1.0
        if self.low is not None and self.high is not None:
            return self.low, self.high
        if self.privacy.epsilon is not None:
            raise UserError(
                "with an epsilon the range of inputs that are not pictures must be given: low and high"
            )
        return 0.0, 1.0

    def expects(self, known: Known) -> dict[str, Stat]:
        """Samples, sums, squares: one number, and one per channel twice."""
        return {"sums": Stat(shape=(1 + 2 * known.shape[0] if known.shape else None,))}


def told_scale(step: TellScale, replies: Sequence[Reply], kind: str) -> Scale | None:
    """Mean and standard deviation of each channel over all that was told; None where nothing was.

    Noise can make a variance negative: such a channel, or one without any width, counts as NARROWEST wide if sums are
    exact, and else as wide as the whole range, so that nothing is blown up.
    """
    tables = [np.asarray(reply.stats["sums"], np.float64) for reply in replies]
    if not tables or (total := np.sum(tables, axis=0))[0] < 1:
        return None
    channels = (len(total) - 1) // 2
    mean, square = total[1 : 1 + channels] / total[0], total[1 + channels :] / total[0]
    variance = square - mean**2
    width = NARROWEST
    if step.privacy.epsilon is not None:
        low, high = step.range_of(kind)
        mean, variance, width = low + mean.clip(0, 1) * (high - low), variance * (high - low) ** 2, high - low
    wide = variance > (1e-12 if step.privacy.epsilon is None else 0.0)
    deviation = np.where(wide, np.sqrt(np.maximum(variance, 0.0)), width)
    return Scale(tuple(mean.tolist()), tuple(np.maximum(deviation, NARROWEST).tolist()))


def of_scale(scale: Scale | None) -> list[list[float]] | None:
    """As plain values, for the wire and for a checkpoint."""
    return None if scale is None else [list(scale.mean), list(scale.std)]


def to_scale(plain: Any, channels: int) -> Scale | None:
    """Of plain values; a `UserError` where they are none."""
    if plain is None:
        return None
    table = np.asarray(plain, np.float64)
    if table.shape != (2, channels) or not np.isfinite(table).all() or (table[1] <= 0).any():
        raise UserError(f"the scale is not a mean and a deviation above 0 for each of {channels} channels")
    return Scale(tuple(table[0].tolist()), tuple(table[1].tolist()))
