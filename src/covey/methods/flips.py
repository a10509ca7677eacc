"""FLIPS: federated learning using intelligent participant selection (Bhope et al., 2023)."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from covey.core import GROUPS, NOTHING, Key, Method, Round, method, part
from covey.methods.baselines import fedavg
from covey.methods.cafa import by_label_mix
from covey.parts.selection.plain import PerRound
from covey.parts.steps import Train
from covey.settings import Count

PICKS: Key[dict[int, int]] = Key("flips.picks")  # how often each client was chosen


def equitable(
    groups: Mapping[int, int], picks: Mapping[int, int], count: int, luck: Mapping[int, float]
) -> list[int]:
    """`count` clients, the groups in turn (the least served first), and of each the one that was chosen least often."""
    waiting: dict[int, list[int]] = {}
    for client, group in groups.items():
        waiting.setdefault(group, []).append(client)
    for members in waiting.values():
        members.sort(key=lambda i: (picks.get(i, 0), luck[i]))
    served = {g: sum(picks.get(i, 0) for i, one in groups.items() if one == g) for g in waiting}
    chosen: list[int] = []
    while len(chosen) < count and any(waiting.values()):
        for group in sorted(waiting, key=lambda g: (served[g], g)):
            if waiting[group] and len(chosen) < count:
                chosen.append(waiting[group].pop(0))
    return sorted(chosen)


@part("select", "equitable", needs=(GROUPS,), shows=NOTHING)
class Equitable(PerRound):
    """Equally many clients of every group, and of a group those that worked least often (FLIPS)."""

    def __call__(self, now: Round) -> list[int]:
        here = {i: now.groups[i] for i in now.here if i in now.groups}
        luck = dict(zip(sorted(here), now.stream("select").random(len(here)).tolist(), strict=True))
        picks = dict(PICKS.get(now.memory, {}))
        chosen = equitable(here, picks, self.per_round, luck)
        PICKS.keep(now.memory, picks | {i: picks.get(i, 0) + 1 for i in chosen})
        return [int(i) for i in np.sort(chosen)]


@method("flips", family="selection", paper="https://arxiv.org/abs/2308.03901")
def flips(train: Train, *, per_round: Count = 10, clusters: Count | None = None) -> Method:
    """FedAvg in which every cluster of similar label mixes is served equally, and in it those who worked least often.

    Label shares are told once and clustered by K-means (Bhope et al., 2023).

    Args:
        clusters: how many clusters of label mixes; none: by the best silhouette.
    """
    group, select = by_label_mix(clusters=clusters), Equitable(per_round=per_round)
    return replace(fedavg(train), name="flips", group=group, select=select)
