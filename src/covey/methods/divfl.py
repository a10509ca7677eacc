"""DivFL: diverse client selection for federated learning via submodular maximization (Balakrishnan et al., 2022)."""

from dataclasses import replace

import numpy as np

from covey.arrays import Array
from covey.core import SKETCHED, Method, Round, method, part
from covey.methods.baselines import random
from covey.parts.selection.clustered_sampling import SKETCHES, remember_sketches
from covey.parts.selection.plain import PerRound
from covey.parts.steps import Train
from covey.settings import Count


def most_central(distances: Array, count: int) -> list[int]:
    """Greedy facility location: each choice most lowers the sum of the distances to the nearest chosen one."""
    nearest = np.full(len(distances), np.inf)
    chosen: list[int] = []
    for _ in range(min(count, len(distances))):
        totals = np.minimum(nearest[:, None], distances).sum(axis=0)
        totals[chosen] = np.inf
        chosen.append(int(totals.argmin()))
        nearest = np.minimum(nearest, distances[:, chosen[-1]])
    return chosen


@part("select", "diverse", needs=(SKETCHES,), shows=SKETCHED)
class Diverse(PerRound):
    """Everybody once; then the clients whose last updates best represent everybody's (DivFL without overhead)."""

    def __call__(self, now: Round) -> list[int]:
        known = SKETCHES.get(now.memory, {})
        count = min(self.per_round, len(now.here))
        fresh = [i for i in now.stream("select").permutation(now.here).tolist() if i not in known][:count]
        tried = [i for i in now.here if i in known]
        if count == len(fresh) or not tried:
            return sorted(fresh)
        rows = np.stack([np.asarray(known[i], float) for i in tried])
        far = np.linalg.norm(rows[:, None] - rows[None], axis=2)
        return sorted(fresh + [tried[place] for place in most_central(far, count - len(fresh))])


@method("divfl", family="selection")
def divfl(train: Train, *, per_round: Count = 10) -> Method:
    """FedAvg on the clients whose last updates best represent everybody's.

    Greedily, each next client lowers most the sum over all clients of the distance to the nearest chosen update
    (Balakrishnan et al., 2022; updates as sketches of 512 numbers).
    """
    select = Diverse(per_round=per_round)
    return replace(random(train), name="divfl", select=select, after=(remember_sketches,))
