"""Sampling that leaves no cluster out (CFIC, section 3.3)."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from covey.core import KNOWN_GROUPS, NOTHING, Key, Round, part
from covey.parts.selection.plain import PerRound

Quota = Literal["equal", "published"]

VISITS: Key[dict[int, int]] = Key("clusters.visits")  # cluster -> the round in which it last worked


def sample_clusters(
    clusters: Mapping[int, Sequence[int]],
    others: Sequence[int],
    count: int,
    last_visit: Mapping[int, int],
    rng: np.random.Generator,
    *,
    quota: Quota = "equal",
) -> list[int]:
    """Draws `count` clients (or all, if fewer): a quota from each cluster, the rest uniformly from those left.

    With m clusters the quota is max(floor(count / m), 1), or all of a smaller cluster. With more clusters than places,
    those that were visited longest ago get one place each, ties at random: `last_visit` says in which round. The
    `published` quota is min(floor(count / m), 1): one per cluster, or none when they are too many. `others` belong to
    no cluster and can only be drawn with the rest.
    """
    everybody = sorted([*others, *(i for members in clusters.values() for i in members)])
    count = min(count, len(everybody))
    places = count // max(1, len(clusters))
    each = min(places, 1) if quota == "published" else max(places, 1)
    order = rng.permutation(sorted(clusters)).tolist()
    if len(clusters) > count:
        order = sorted(order, key=lambda cluster: last_visit.get(cluster, 0))[:count]
    chosen: set[int] = set()
    for cluster in order:
        members = sorted(clusters[cluster])
        chosen.update(rng.choice(members, size=min(each, len(members)), replace=False).tolist())
    left = [i for i in everybody if i not in chosen]
    chosen.update(rng.choice(left, size=count - len(chosen), replace=False).tolist() if left else [])
    return sorted(chosen)


@part("select", "every-cluster", needs=(KNOWN_GROUPS,), gives=(VISITS,), shows=NOTHING)
class EveryCluster(PerRound):
    """CFIC's sampling: `per_round` reachable clients, drawn from the groups as evenly as these allow.

    Uniformly while no group is known.
    """

    quota: Quota = "equal"

    def __call__(self, now: Round) -> list[int]:
        clusters: dict[int, list[int]] = {}
        for i in now.here:
            if i in now.groups:
                clusters.setdefault(now.groups[i], []).append(i)
        others = [i for i in now.here if i not in now.groups]
        visits = VISITS.get(now.memory, {})
        chosen = sample_clusters(
            clusters, others, self.per_round, visits, now.stream("select"), quota=self.quota
        )
        seen = {now.groups[i]: now.number for i in chosen if i in now.groups}
        VISITS.keep(now.memory, visits | seen)
        return chosen
