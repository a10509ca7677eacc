"""TiFL (Chai et al., 2020): tiers of devices of similar speed; each round one works, inaccurate tiers more often.

The functions are pure: the state (tiers, credits, probabilities, accuracies) goes in and comes out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.core import Key, Method, Round, by_losses, method, part
from covey.methods.baselines import random
from covey.parts.mix.average import Weighting
from covey.parts.selection.feedback import ByLosses, remember_losses
from covey.parts.selection.plain import drawn_clients
from covey.parts.steps.train import Train
from covey.settings import Count, inline

TIERS: Key[Mapping[str, Any]] = Key("tiers")


@part("select", "tifl")
class ByTier(ByLosses):
    """TiFL: one tier of devices of similar speed per round, drawn by probability while it has credits.

    Of its reachable clients `per_round` work, at random.

    Args:
        tiers: how many tiers, fewer if they could not fill a round.
        interval: rounds without progress after which the tiers are ranked anew.
        rounds: of the whole run; a tier has ceil(rounds / tiers) credits, and when all are spent they start anew.
    """

    tiers: Count = 5
    interval: Count = 5
    rounds: Count = 200

    shows = property(by_losses)

    def __call__(self, now: Round) -> list[int]:
        seconds = now.fleet.seconds(self.step, sorted({*now.seen, *now.fleet.members()}))
        state = self._with_unseen(now.memory.get(TIERS.name), now, seconds)
        tiers, here = state["tiers"], set(now.here)
        history = grown(state["history"], tiers, self.known(now))
        credits = np.array(state["credits"], dtype=np.int64)
        probabilities = np.array(state["probabilities"])
        due = now.number > 1 and now.number % self.interval == 0
        if due and stalled([-loss for loss in history[state["current"]]], self.interval):
            probabilities = tier_probabilities(np.array([-losses[-1] for losses in history]), credits)
        reachable = np.array([any(i in here for i in tier) for tier in tiers])
        current = draw_tier(probabilities, credits, reachable, now.stream("select", "tier"))
        credits[current] -= 1
        if (credits <= 0).all():
            credits[:] = credits_each(self.rounds, len(tiers))
        kept = {
            "tiers": tiers,
            "credits": credits.tolist(),
            "probabilities": probabilities.tolist(),
            "history": [losses[-self.interval - 1 :] for losses in history],
            "current": current,
        }
        TIERS.keep(now.memory, kept)
        members = sorted(i for i in tiers[current] if i in here)
        return drawn_clients(members, self.per_round, now.stream("select"))

    def _with_unseen(
        self, state: Mapping[str, Any] | None, now: Round, seconds: Mapping[int, float]
    ) -> Mapping[str, Any]:
        if state is None:
            enough = max(1, min(self.tiers, len(seconds) // self.per_round))  # a tier has to fill a round
            tiers = make_tiers(seconds, enough)
            return {
                "tiers": tiers,
                "credits": [credits_each(self.rounds, len(tiers))] * len(tiers),
                "probabilities": [1.0 / len(tiers)] * len(tiers),
                "history": [[] for _ in tiers],
                "current": 0,
            }
        placed = {i for tier in state["tiers"] for i in tier}
        tiers = [list(tier) for tier in state["tiers"]]
        for unseen in (i for i in now.here if i not in placed):
            tiers[nearest_tier(tiers, seconds, seconds[unseen])].append(unseen)
        return {**state, "tiers": tiers}


def grown(
    history: Sequence[Sequence[float]], tiers: Sequence[Sequence[int]], known: Mapping[int, float]
) -> list[list[float]]:
    """Each tier's mean losses so far and now.

    Where nothing is known now, the last one again (1 at the start).
    """
    means = []
    for past, tier in zip(history, tiers, strict=True):
        losses = [known[i] for i in tier if i in known]
        means.append([*past, float(np.mean(losses)) if losses else past[-1] if past else 1.0])
    return means


def make_tiers(latency: Mapping[int, float], count: int) -> list[list[int]]:
    """Sort the clients by latency (ties by id) and cut them into `count` tiers, as equal as can be."""
    order = sorted(latency, key=lambda i: (latency[i], i))
    parts = np.array_split(np.array(order, dtype=np.int64), min(count, len(order)))
    return [[int(i) for i in part] for part in parts]


def nearest_tier(tiers: Sequence[Sequence[int]], latency: Mapping[int, float], unseen: float) -> int:
    """The tier whose mean latency is nearest to the unseen client's."""
    means = [np.mean([latency[i] for i in tier]) for tier in tiers]
    return int(np.argmin([abs(mean - unseen) for mean in means]))


def credits_each(rounds: int, tiers: int) -> int:
    """Equal credits: each tier may be chosen ceil(rounds / tiers) times."""
    return math.ceil(rounds / tiers)


def tier_probabilities(accuracy: Array, credits: NDArray[np.int64]) -> Array:
    """Of n tiers with credits, the j-th least accurate (j = 0..) gets (n - j) / (n (n + 1) / 2)."""
    alive = np.flatnonzero(credits > 0)
    probabilities = np.zeros(len(accuracy))
    n = len(alive)
    for rank, tier in enumerate(sorted(alive, key=lambda t: (accuracy[t], t))):
        probabilities[tier] = (n - rank) / (n * (n + 1) / 2)
    return probabilities


def draw_tier(
    probabilities: Array, credits: NDArray[np.int64], reachable: NDArray[np.bool_], rng: np.random.Generator
) -> int:
    """A tier with credits and somebody reachable, by probability; among the rest if all have none."""
    for weights in (probabilities * (credits > 0) * reachable, reachable * (credits > 0), reachable):
        total = float(weights.sum())
        if total > 0:
            return int(rng.choice(len(weights), p=weights / total))
    raise ValueError("no tier has a reachable client")


def stalled(history: Sequence[float], interval: int) -> bool:
    """Whether a tier's accuracy did not improve over the last `interval` rounds."""
    return len(history) > interval and history[-1] <= history[-1 - interval]


@method("tifl", family="selection", paper="https://arxiv.org/abs/2001.09249")
def tifl(train: Train, *, weighting: Weighting = "equal", select: ByTier = inline(ByTier)) -> Method:
    """TiFL (Chai et al., 2020): clients of similar speed form tiers, and each round one tier works.

    A tier is drawn by probability while it has credits (ceil(rounds / tiers)). When the tier in work made no progress
    over `interval` rounds, tiers are ranked by loss: the worst of n gets probability n / (n (n + 1) / 2), and so on.
    `losses` says how the losses are known: reported with training, asked (and paid) each round, or as published.
    """
    return replace(random(train, weighting=weighting), name="tifl", select=select, after=(remember_losses,))
