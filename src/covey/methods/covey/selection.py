"""Who of a flock works: the fair schedule over the label groups of every flock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from covey.core.needs import GROUPS, Facts, needs_of
from covey.core.round import Round, Select
from covey.core.shows import SAME_AS_COVEY, Shows
from covey.methods.covey.grouping import PORTRAITS
from covey.parts.group.label_feature import label_feature
from covey.parts.selection.fair import LAST_CHOSEN


@dataclass(frozen=True, kw_only=True)
class WithinFlocks:
    """Lets `select` choose among finer groups: every flock is cut by its members' label features.

    The label feature (CFIC, eq. 2) is read off the label counts of the clients' portraits, so nobody is asked again.
    """

    select: Select

    shows: ClassVar[Shows] = Shows(what="every client's exact loss", instead=SAME_AS_COVEY)

    @property
    def needs(self) -> Facts:
        return (GROUPS, PORTRAITS, *needs_of(self.select))

    def __call__(self, now: Round) -> list[int]:
        finer = label_groups(now)
        chosen = self.select(replace(now, groups=finer))
        now.notes["who was chosen"] = {"text": told_in_words(now, finer, chosen)}
        return chosen


def told_in_words(now: Round, finer: Mapping[int, int], chosen: Sequence[int]) -> str:
    """The choice for the report."""
    last = LAST_CHOSEN.get(now.memory, {})
    waits = max((now.number - last.get(i, 0) for i in now.here), default=0)
    return (
        f"Round {now.number}: {len(set(chosen))} of {len(now.here)} clients work, from {kinds(now.groups, chosen)} of "
        f"{kinds(now.groups, now.here)} flocks and {kinds(finer, chosen)} of {kinds(finer, now.here)} groups (clients "
        "of one flock whose most outstanding label is the same). A round is chosen as a whole, for what it is worth in "
        "its time: large groups, groups with a high loss and those who waited long are worth more. The longest wait is "
        f"{waits} {'round' if waits == 1 else 'rounds'}."
    )


def kinds(groups: Mapping[int, int], ids: Sequence[int]) -> int:
    """How many groups these clients are in."""
    return len({groups[i] for i in ids if i in groups})


def label_groups(now: Round) -> dict[int, int]:
    """Everybody's group inside its flock: those whose label stands out most are one."""
    told = PORTRAITS.of(now.memory)
    labels = {i: label_feature(np.rint(one["counts"]).astype(np.int64)) for i, one in told.items()}
    return cut_by_label(now.groups, labels)


def cut_by_label(groups: Mapping[int, int], labels: Mapping[int, int]) -> dict[int, int]:
    """One number for every pair of group and label, the same in every round."""
    base = 1 + max(labels.values(), default=0)
    return {i: group * base + labels[i] for i, group in groups.items() if i in labels}
