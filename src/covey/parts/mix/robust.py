"""Combines that a few broken or hostile clients cannot steer: Krum, trimmed mean, median, clipped updates.

Each is a part by itself (`Median()` combines the replies of every model of the bank), and a rule that can be put inside
any method's mix with `Robust`: then every new row, of whatever group, is combined by it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from covey.arrays import Array
from covey.core import CLIPPED, Mix, Mixing, Reply, Round, Rule, Shows, like, part
from covey.parts.mix.average import weighted_rows
from covey.parts.mix.combine import combine
from covey.parts.mix.gram import products
from covey.settings import BelowHalf, Count, Natural, Positive, register

COLUMNS = 1 << 16  # sorted at a time


# ---------------------------------------------------------------------------------------------- the rules


def krum_scores(vectors: Sequence[Tensor], hostile: int) -> Array:
    """For each vector the sum of squared distances to its n - f - 2 nearest others (at least one)."""
    gram = products(vectors)
    lengths = np.diag(gram)
    distance = np.maximum(lengths[:, None] + lengths[None] - 2 * gram, 0)
    np.fill_diagonal(distance, np.inf)
    near = max(1, len(vectors) - hostile - 2)
    return np.asarray(np.sort(distance, axis=1)[:, :near].sum(axis=1))


@register("robust combine", "krum")
@part("mix", "krum")
class Krum:
    """All weight on the `keep` replies that lie closest to their neighbours, equally (Blanchard et al., 2017).

    `hostile` is the number f of bad replies to withstand, for which n replies must be at least 2 f + 3. Where a row has
    fewer, it withstands as many as it can, (n - 3) / 2.

    Args:
        hostile: how many replies may be hostile.
        keep: how many of the best replies are averaged.
    """

    hostile: Natural = 1
    keep: Count = 1

    around_start: ClassVar[bool] = False

    shows: ClassVar[Shows] = Shows(
        what="single updates, of which it publishes one", instead=CLIPPED, in_updates=True
    )

    def __call__(self, now: Round) -> Mixing:
        slots = [reply.slot for reply in now.replies]
        values = np.zeros(len(slots))
        for slot in set(slots):
            here = [place for place, other in enumerate(slots) if other == slot]
            values[np.array(here)[self.kept([_row(now.replies[place]) for place in here])]] = 1.0
        note_too_few(now, self, slots)
        return Mixing(factors=[weighted_rows(now, values)])

    def combine(self, rows: Sequence[Tensor], weights: Array, start: Tensor) -> Tensor:  # noqa: ARG002
        """The mean of those that are kept."""
        kept = self.kept(rows)
        return weighted_mean([rows[place] for place in kept], np.full(len(kept), 1 / len(kept)))

    def kept(self, rows: Sequence[Tensor]) -> NDArray[np.intp]:
        """The places of the rows that count."""
        if len(rows) < 2:
            return np.arange(len(rows))
        hostile = min(self.hostile, max(0, (len(rows) - 3) // 2))
        return np.argsort(krum_scores(rows, hostile), kind="stable")[: self.keep]

    def fewest(self) -> int:
        return 2 * self.hostile + 3


def trimmed_mean(rows: Tensor, cut: int) -> Tensor:
    """The mean of each column without its `cut` largest and `cut` smallest values."""
    kept = rows.sort(dim=0).values[cut : len(rows) - cut]
    return kept.double().mean(0).float()


def median(rows: Tensor) -> Tensor:
    """The median of each column; of an even number, the mean of the two in the middle."""
    return trimmed_mean(rows, (len(rows) - 1) // 2)


class CombinesReplies:
    """A rule as a part: of the replies to every model of the bank it makes that model."""

    around_start: ClassVar[bool] = False

    def __call__(self: Rule, now: Round) -> Tensor:
        note_too_few(now, self, [reply.slot for reply in now.replies])
        return of_every_model(now, self)

    def fewest(self) -> int:
        return 3


BY_NUMBERS = Shows(what="single updates, number by number", instead=CLIPPED, in_updates=True)


@register("robust combine", "trimmed-mean")
@part("combine", "trimmed-mean", shows=BY_NUMBERS)
class TrimmedMean(CombinesReplies):
    """Column by column, the mean without the share `trim` of the replies at either end (Yin et al., 2018).

    At least one is left out at either end, of three replies or more; of fewer none can be.

    Args:
        trim: share that is left out at either end.
    """

    trim: BelowHalf = 0.1

    def combine(self, rows: Sequence[Tensor], weights: Array, start: Tensor) -> Tensor:  # noqa: ARG002
        return by_column(rows, lambda part: trimmed_mean(part, self.cut(len(part))))

    def cut(self, replies: int) -> int:
        """How many are left out at either end."""
        return min(max(1, int(self.trim * replies)), (replies - 1) // 2) if self.trim else 0

    def fewest(self) -> int:
        return 3 if self.trim else 1


@register("robust combine", "median")
@part("combine", "median", shows=BY_NUMBERS)
class Median(CombinesReplies):
    """Column by column, the median of the replies (Yin et al., 2018)."""

    def combine(self, rows: Sequence[Tensor], weights: Array, start: Tensor) -> Tensor:  # noqa: ARG002
        return by_column(rows, median)


@register("robust combine", "clip")
@part("combine", "clip")
class Clip(CombinesReplies):
    """The method's own weights, after every update w_k - w was shortened to at most `times` their median length.

    w + sum of p_k (w_k - w) min(1, times m / ||w_k - w||), m the median of the lengths (as in Sun et al., 2019, who
    give the bound).
    """

    times: Positive = 1.0

    around_start: ClassVar[bool] = True

    shows: ClassVar[Shows] = Shows(
        what="single updates, of which it needs the median length",
        instead='use fedavg with private.clip = "adaptive"',
        in_updates=True,
    )

    def combine(self, rows: Sequence[Tensor], weights: Array, start: Tensor) -> Tensor:
        lengths = np.array([float(torch.linalg.vector_norm(r - start, dtype=torch.float64)) for r in rows])
        bound = self.times * np.median(lengths)
        pull = weights * np.divide(bound, lengths, out=np.ones_like(lengths), where=lengths > bound)
        return weighted_mean([*rows, start], np.append(pull, 1 - pull.sum()))


# ---------------------------------------------------------------------------------------------- inside a mix


@dataclass(frozen=True, kw_only=True)
class Robust:
    """A method's mix with the rule in place of every weighted mean of replies: for all models, inside every group.

    A reply to which the mix gives no weight is ignored; otherwise the median, the trimmed mean and Krum count all
    equally, so that no client gains by its weight.
    """

    mix: Mix
    rule: Rule

    needs, gives = like("mix")
    shows: ClassVar[Shows] = Shows(
        what="single updates, which [robust] compares",
        instead="bad clients are bounded by the clip length: leave it out",
        in_updates=True,
    )

    def __call__(self, now: Round) -> list[Mixing]:
        mixing = self.mix(now)
        mixings = [mixing] if isinstance(mixing, Mixing) else list(mixing)
        note_too_few(now, self.rule, [reply.slot for reply in now.replies])
        return [replace(one, rule=self.rule) for one in mixings]


def robust_product(
    factors: Sequence[csr_array], bank: Tensor, replies: Sequence[Tensor], rule: Rule
) -> Tensor:
    """The factors applied one after another, each weighted mean of replies (later: of the rows so far) by the rule.

    A row of the first factor is what it takes of old rows, as it is, plus its weight on replies times what the rule
    makes of these: FedAvg's row has weight 1 on replies, FedMGDA+'s another.
    """
    rows: list[Tensor] = [*bank, *replies]
    old = len(bank)
    for factor in factors:
        matrix = csr_array(factor, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        known: dict[tuple[int, bytes, bytes], Tensor] = {}
        starts = list(bank) if old else rows
        new = []
        for number, (first, last) in enumerate(zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)):
            places, weights = matrix.indices[first:last], matrix.data[first:last]
            start = starts[number] if number < len(starts) else rows[places[0]]
            own = number if rule.around_start else -1  # equal rows are combined once
            key = (own, places.tobytes(), weights.tobytes())
            if key not in known:
                known[key] = _one_row(rows, places, weights, old, start, rule)
            new.append(known[key])
        rows, old = new, 0
    return torch.stack(rows)


def _one_row(
    rows: Sequence[Tensor], places: NDArray[np.int32], weights: Array, old: int, start: Tensor, rule: Rule
) -> Tensor:
    told = places >= old
    say = float(weights[told].sum())
    if told.sum() < 2 or not say > 0:
        return weighted_mean([rows[place] for place in places], weights)
    combined = rule.combine([rows[place] for place in places[told]], weights[told] / say, start)
    if told.all() and abs(say - 1) < 1e-9:
        return combined
    return weighted_mean(
        [*(rows[place] for place in places[~told]), combined], np.append(weights[~told], say)
    )


def weighted_mean(rows: Sequence[Tensor], weights: Array) -> Tensor:
    """The sum of weight times row, added up as everywhere else."""
    return combine([csr_array(np.asarray(weights, np.float64)[None])], list(rows))[0]


def of_every_model(now: Round, rule: Rule) -> Tensor:
    """The bank with each row replaced by the rule over the replies that started from it; others stay."""
    new = now.models.clone()
    for slot in sorted({reply.slot for reply in now.replies}):
        replies = [reply for reply in now.replies if reply.slot == slot]
        weights = np.full(len(replies), 1 / len(replies))
        new[slot] = rule.combine([_row(reply) for reply in replies], weights, now.models[slot])
    return new


def by_column(rows: Sequence[Tensor], rule: Callable[[Tensor], Tensor]) -> Tensor:
    """The rule over every column, some columns at a time."""
    new = torch.empty_like(rows[0])
    for start in range(0, len(new), COLUMNS):
        part = torch.stack([row[start : start + COLUMNS] for row in rows])
        new[start : start + COLUMNS] = rule(part)
    return new


def note_too_few(now: Round, rule: Rule, slots: Sequence[int]) -> None:
    """For the report: in how many rounds some model had too few replies for the rule to withstand anything."""
    there = min(np.unique(slots, return_counts=True)[1], default=0)
    if there >= rule.fewest():
        return
    before = now.notes.get("robust", {"rounds": 0})
    now.notes["robust"] = {
        "rounds": before["rounds"] + 1,
        "text": f"In {before['rounds'] + 1} rounds a model had fewer replies (last: {there} in round {now.number}) "
        f"than the {rule.fewest()} that its combine needs to withstand a bad one.",
    }


def _row(reply: Reply) -> Tensor:
    assert reply.vector is not None
    return reply.vector
