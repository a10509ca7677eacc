"""Mixing between groups by evidence: each group's model with others', as far as its own held-out data say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from covey.core.needs import GROUPS, MODEL_PER_GROUP, Facts, Key
from covey.core.round import Mixing, Reply, Round, Task
from covey.core.shows import ANY_GROUPS, Shows
from covey.methods.cafa.accuracy import accuracy_table
from covey.parts.mix.average import Weighting, weighted_rows, weights
from covey.parts.steps.cross import CrossEvaluate
from covey.settings.ranges import Count, PartBelowOne
from covey.settings.registry import register
from covey.settings.signatures import validated

Array = NDArray[np.float64]
# group -> the groups whose models make its own
MIXED: Key[dict[int, list[int]]] = Key("mixed between groups")


@register("mix part", "evidence-average")
@validated
@dataclass(frozen=True, kw_only=True)
class EvidenceAverage:
    """Each group's average, mixed with those of other groups where its clients' held-out data prefer that.

    w_f <- sum of n_g w_g / sum of n_g over a set of groups, n_g clients each. A set of f alone means separate models,
    all groups one model. Every so many rounds everybody who is here judges, for its group, the group's own average, the
    one mixed with each other group's, and that of all (CAFA's cross-evaluation, between groups); the set with the most
    hits is used until the next time, of equal ones the smallest.

    Args:
        every: rounds between two judgements.
        holdout: share of the clients' data that judges; set `train.holdout` to it, so that nobody trains on them.
        weighting: of the replies in a group's average.
    """

    every: Count = 3
    holdout: PartBelowOne = 0.1
    weighting: Weighting = "samples"

    needs: ClassVar[Facts] = (GROUPS, MODEL_PER_GROUP)
    shows: ClassVar[Shows] = Shows(
        what="exact evaluations of several models on every client's data", instead=ANY_GROUPS
    )

    def __call__(self, now: Round) -> Mixing:
        own = weighted_rows(now, [reply.slot for reply in now.replies], weights(now.replies, self.weighting))
        sizes = Counter(now.groups.values())
        if now.number % self.every == 0 and len(sizes) > 1:
            MIXED.keep(now.memory, self.judged(now, own, sizes))
        between = between_groups(len(now.models), MIXED.get(now.memory, {}), sizes)
        return Mixing(factors=[csr_array(between @ own)])

    def judged(self, now: Round, own: csr_array, sizes: Mapping[int, int]) -> dict[int, list[int]]:
        """The set of groups that each group's clients judge best."""
        rows = now.fleet.combine([Mixing(factors=[own])], now.models, now.replies, now.seen)
        sets = {group: candidates(group, sorted(sizes)) for group in sorted(sizes)}
        tasks: dict[int, Task] = {}
        for group, options in sets.items():
            tried = [between_groups(len(rows), {group: option}, sizes)[group] for option in options]
            models = torch.from_numpy(np.stack(tried)).to(rows.dtype) @ rows
            task = Task(models=models, slots=tuple(range(len(options))))
            tasks |= {i: task for i in now.here if now.groups.get(i) == group}
        most = max(len(options) for options in sets.values())
        answers = now.fleet.ask(CrossEvaluate(holdout=self.holdout, models=most), tasks)
        found = {
            g: best(options, [a for a in answers if now.groups[a.id] == g]) for g, options in sets.items()
        }
        now.notes["mixed between groups"] = {
            "group": list(found),
            "made of the models of": [", ".join(map(str, option)) for option in found.values()],
        }
        return found


def candidates(group: int, groups: Sequence[int]) -> list[list[int]]:
    """The group alone, with each other one, and all of them."""
    others = [[group, other] for other in groups if other != group]
    return [[group], *others, *([list(groups)] if len(groups) > 2 else [])]


def best(options: Sequence[list[int]], answers: Sequence[Reply]) -> list[int]:
    """The option with the highest accuracy over all samples, the first of equal ones; the first if nobody answered."""
    table, sizes = accuracy_table(answers, len(options))
    return options[int((table @ sizes).argmax())] if sizes.sum() > 0 else options[0]


def between_groups(rows: int, mixed: Mapping[int, Sequence[int]], sizes: Mapping[int, int]) -> Array:
    """The matrix that mixes groups' rows: row f spreads over its set by the groups' numbers of clients."""
    matrix = np.eye(rows)
    for group, members in mixed.items():
        there = [other for other in members if sizes.get(other, 0) > 0]
        if group in there:
            matrix[group] = 0.0
            matrix[group, there] = [sizes[other] for other in there]
            matrix[group] /= matrix[group].sum()
    return matrix
