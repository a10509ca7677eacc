"""Who works, flock by flock and inside each by the label that stands out most, as CFIC groups clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from covey.core import Round, Select
from covey.group.by_portrait import PORTRAITS
from covey.group.label_feature import label_feature
from covey.needs import GROUPS, Facts, needs_of


@dataclass(frozen=True, kw_only=True)
class WithinFlocks:
    """Lets `select` choose among finer groups: every flock is cut by its members' label features.

    The label feature (CFIC, eq. 2) is read off the label counts of the clients' portraits, so nobody is asked again.
    """

    select: Select

    @property
    def needs(self) -> Facts:
        return (GROUPS, PORTRAITS, *needs_of(self.select))

    def __call__(self, now: Round) -> list[int]:
        return self.select(replace(now, groups=label_groups(now)))


def label_groups(now: Round) -> dict[int, int]:
    """Everybody's group inside its flock: those whose label stands out most are one."""
    told = PORTRAITS.of(now.memory)
    labels = {i: label_feature(np.rint(one["counts"]).astype(np.int64)) for i, one in told.items()}
    return cut_by_label(now.groups, labels)


def cut_by_label(groups: Mapping[int, int], labels: Mapping[int, int]) -> dict[int, int]:
    """One number for every pair of group and label, the same in every round."""
    base = 1 + max(labels.values(), default=0)
    return {i: group * base + labels[i] for i, group in groups.items() if i in labels}
