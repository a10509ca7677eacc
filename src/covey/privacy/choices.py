"""Sums in which nobody's choice of a model is seen: one over the rows of all models, with zeros but for the chosen one.

    v_k = (0, ..., u_k, ..., 0; 0, ..., C / 4, ..., 0)   a client's update in the row of its choice, and a count
    told: the sum of v_k + N(0, (z C)^2)                 one Gaussian mechanism: one clip bounds update and choice

So that ||v_k|| <= C, an update may have sqrt(1 - 1/16) of the clip length. The last coordinates, divided by C / 4, are
noisy counts of who chose which model; a model's sum is divided by its share of the clients, as all rounds have told it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from covey.core import Key, Reply, Round
from covey.parts.steps.gaussian_noise import gaussian
from covey.privacy.accountant import Sampling
from covey.privacy.sums import NoisySums, Pool, RoundSums

COUNTED_AS = 0.25  # of the clip length: what a choice is worth beside the update
SURE = (
    2.0  # standard deviations of a count that it is taken for at least, so that nothing is divided by chance
)

# of each model: who chose it, added up over the rounds; who was expected in all of them; the variance of these counts
CHOSEN: Key[list[list[float]]] = Key("private.chosen")


@dataclass(frozen=True, kw_only=True)
class ChoiceSums(NoisySums):
    """Noisy sums of the updates of those who chose a model at home: who chose which is part of what is hidden."""

    def room(self, now: Round) -> float:
        return math.sqrt(1 - COUNTED_AS**2) if len(now.models) > 1 else 1.0

    def whole(self, expected: Mapping[Pool, float]) -> float:
        return max(expected.values())

    def pools(self, now: Round, replies: Sequence[Reply]) -> dict[Pool, list[int]]:  # noqa: ARG002
        """Everybody can be in every sum."""
        return {(slot, -1): list(now.here) for slot in range(len(now.models))}

    def rows(self, now: Round) -> int:
        return len(now.models)

    def behind(self, now: Round, pool: Pool, sums: RoundSums) -> float:
        """The model's share of the clients, by all counts so far, of those who are expected now."""
        of = sums.expected[pool]
        if len(now.models) == 1:
            return of
        count, scale = torch.tensor([sums.counts[pool]], dtype=torch.float64), sums.split.updates / COUNTED_AS
        if not sums.has_noise:
            rng = now.stream("private", "chosen", pool[0]) if now.fleet.simulated else None
            count = gaussian(count, scale, rng)
        kept = np.array(CHOSEN.get(now.memory, []) or np.zeros((len(sums.pools), 3)))
        kept[pool[0]] += (float(count[0]), of, scale**2)
        CHOSEN.keep(now.memory, kept.tolist())
        counted, all_of, variance = kept[pool[0]]
        share = min(1.0, max(float(counted), SURE * math.sqrt(variance)) / float(all_of))
        return max(1.0, share * of)

    def account(self, now: Round, sums: RoundSums, sampling: Sampling) -> None:
        super().account(now, sums, sampling)
        if len(now.models) > 1:
            counted = [max(0.0, count / of) for count, of, _ in CHOSEN.of(now.memory)]
            now.notes["clients behind each model"] = {
                "model": list(range(len(now.models))),
                "share of the clients, by noisy counts": [round(share, 3) for share in counted],
            }
