"""Oort (Lai et al., 2021): clients of high statistical utility that are fast enough, exploration, staleness, a pacer.

The functions work on arrays over the clients that can be chosen; times in seconds, rounds counted from 1.
"""

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covey.arrays import Array, Mask
from covey.core import Client, Fact, Key, Known, Method, Reply, Round, Shows, Task, method, part, step
from covey.core.needs import UTILITY
from covey.core.reply_schema import Stat
from covey.core.shows import EXACT_LOSSES
from covey.methods.baselines import random
from covey.parts.mix.average import Weighting
from covey.parts.selection.feedback import ByLosses, remember_losses
from covey.parts.steps.size import sizes
from covey.parts.steps.train import AroundTraining, Train, best_row, local_fit, reply_of
from covey.settings import Count, Percentile, Share, inline, validated


@step("utility", gives=(UTILITY,))
class TrainWithUtility(AroundTraining):
    """Training that also tells how useful the client's data are: |B| sqrt(mean of the squared per-sample losses).

    B are the samples of the first epoch's batches, as training draws them. The losses are those of the model as it
    was sent: Oort's own client averages them while the model already changes, which no other party could check. They
    come out of training itself on a device, and cost nothing more.
    """

    shows: ClassVar[Shows] = Shows(what="the exact loss of every client's samples", instead="use fedavg")

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, start = best_row(client, task)
        part = self.train.training_part(client)
        x, y = part.select(first_epoch(self.train, len(part), copy.deepcopy(client.rng))).tensors()
        losses = client.bench.objective.scores(
            client.bench.forward(start, x), client.bench.objective.target(x, y)
        )["loss"]
        fit = local_fit(self.train, client, start)
        reply = reply_of(client, fit, slot, size=len(part))
        return replace(reply, stats={**reply.stats, "utility": utility(losses)})

    def expects(self, known: Known) -> dict[str, Stat]:
        return {**self.train.expects(known), "utility": Stat(low=0.0)}


def first_epoch(train: Train, samples: int, rng: np.random.Generator) -> np.ndarray:
    """The samples that the first epoch's batches hold, in ascending order; `rng` is as training will find it."""
    one = replace(train, epochs=1)
    return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *one.order(samples, rng)]))


def utility(losses: Tensor) -> float:
    """|B| sqrt(mean of squared losses)."""
    return float(len(losses) * np.sqrt(float(losses.double().square().mean())))


def most_samples(train: Train) -> int:
    """|B| at most: what the batches of one round can hold."""
    return 2**62 if train.batches is None else train.batches * train.batch


EXPLOITED = Fact("clients that Oort chose", 'set select = "oort"')
UTILITIES: Key[dict[str, Any]] = Key("oort", 'add "utilities" to after')


@validated
class Oort:
    """Oort's constants, by default those of its official training selector.

    Args:
        explore: share of the places for clients never tried, at first.
        explore_decay: factor on that share in each round.
        explore_least: the lowest that share falls to.
        clip: quantile at which utilities are cut.
        cut_off: share of the score at the last exploited rank that still qualifies.
        penalty: exponent of (T / t) for clients slower than T.
        percentile: of the clients' durations: T at first.
        pace_every: the pacer's window in rounds.
        pace_step: the pacer's step in percentiles.
        window: candidates for each explored place.
    """

    explore: Share = 0.9
    explore_decay: Share = 0.95
    explore_least: Share = 0.2
    clip: Share = 0.98
    cut_off: Share = 0.7
    penalty: float = 2.0
    percentile: Percentile = 10.0
    pace_every: Count = 20
    pace_step: float = 5.0
    window: float = 5.0


@part("select", "oort", needs=(UTILITIES,), gives=(EXPLOITED,), shows=EXACT_LOSSES)
class ByUtility(Oort):
    """Oort's full algorithm: exploit clients of high utility, explore untried ones, first round at random.

    The settings beside `per_round` are Oort's constants. What happened is kept by `remember_utilities`.

    Args:
        train: what clients do, for their durations.
    """

    train: Train
    per_round: Count = 10

    def __call__(self, now: Round) -> list[int]:
        state = now.memory.get(UTILITIES.name) or {
            "exploration": self.explore,
            "percentile": self.percentile,
            "gains": [],
            "clients": {},  # id -> utility, round of last use
        }
        known = sizes(now, now.here)
        tried = {int(i): seen for i, seen in state["clients"].items()}
        most = float(most_samples(self.train))  # what a client trains on at most in a round, its |B|
        hope = [min(float(known.get(i, 0)), most) for i in now.here]
        seconds = now.fleet.seconds(self.train, now.fleet.members())
        percentile = paced(state["percentile"], state["gains"], now.number, self)
        untried = any(i not in tried for i in now.here)
        exploration = next_exploration(state["exploration"], self, untried_left=untried)
        picked = pick(
            np.array([tried[i][0] if i in tried else hope[p] for p, i in enumerate(now.here)]),
            np.array([seconds[i] for i in now.here]),
            np.array([tried[i][1] if i in tried else 0.0 for i in now.here]),
            np.array([i in tried for i in now.here]),
            number=now.number,
            count=self.per_round,
            exploration=exploration,
            preferred=preferred_duration(np.array(list(seconds.values())), percentile),
            oort=self,
            rng=now.stream("select"),
        )
        chosen = picked.all()
        if now.number == 1:
            size = min(self.per_round, len(now.here))
            chosen = now.stream("select").choice(len(now.here), size=size, replace=False).tolist()
        kept = {
            "exploration": exploration,
            "percentile": percentile,
            "exploited": [now.here[position] for position in picked.exploited],
        }
        UTILITIES.keep(now.memory, state | kept)
        return sorted(now.here[position] for position in chosen)


@part("after", "utilities", shows=EXACT_LOSSES, needs=(UTILITY, EXPLOITED), gives=(UTILITIES,))
def remember_utilities(now: Round) -> None:
    """Keeps each worker's utility and round, and what the exploited ones gained."""
    state = UTILITIES.of(now.memory)
    fresh = {str(reply.id): [float(reply.stats["utility"]), float(now.number)] for reply in now.replies}
    gains = [fresh[str(i)][0] for i in state["exploited"] if str(i) in fresh]
    gain = float(np.mean(gains)) if gains else 0.0
    kept = {"clients": state["clients"] | fresh, "gains": [*state["gains"], gain]}
    UTILITIES.keep(now.memory, state | kept)


@part("select", "oort-simple", shows=EXACT_LOSSES)
class ByPenalisedLoss(ByLosses):
    """HACCS' simplified Oort: the highest losses, with a penalty for devices slower than T.

    Args:
        percentile: of the clients' durations: T.
        penalty: exponent of (T / t) for clients slower than T.
    """

    percentile: Percentile = 10.0
    penalty: float = 2.0

    def __call__(self, now: Round) -> list[int]:
        known = self.known(now)
        highest = max(known.values(), default=1.0)
        seconds = now.fleet.seconds(self.step, now.here)
        durations = np.array([seconds[i] for i in now.here])
        chosen = top(
            np.array([known.get(i, highest) for i in now.here]),
            durations,
            count=self.per_round,
            preferred=preferred_duration(durations, self.percentile),
            penalty=self.penalty,
        )
        return sorted(now.here[position] for position in chosen)


@dataclass(frozen=True)
class Picked:
    """Positions chosen by score, for exploration, and to fill up."""

    exploited: list[int]
    explored: list[int]
    filled: list[int]

    def all(self) -> list[int]:
        return [*self.exploited, *self.explored, *self.filled]


def preferred_duration(durations: Array, percentile: float) -> float:
    """T: the duration at a percentile of all clients' durations; no limit from 100 on."""
    if percentile >= 100 or len(durations) == 0:
        return float("inf")
    place = min(int(len(durations) * percentile / 100.0), len(durations) - 1)
    return float(np.sort(durations)[place])


def speed_factor(durations: Array, preferred: float, penalty: float) -> Array:
    """(T / t) ** penalty for clients slower than T, else 1."""
    slow = durations > preferred
    ratio = np.divide(preferred, np.maximum(durations, 1e-4), out=np.ones_like(durations), where=slow)
    return np.asarray(ratio**penalty)


def scores(
    utilities: Array, durations: Array, last: Array, tried: Mask, *, number: int, preferred: float, oort: Oort
) -> Array:
    """Score of every tried client in round `number` (others: nan).

    (min(U, clip) - 0.999 min U) / range + sqrt(0.1 ln(round) / round of last use), times the speed factor.
    """
    known = np.sort(utilities[utilities > 0])
    result = np.full(len(utilities), np.nan)
    if len(known) == 0:
        result[tried] = 0.0
        return result
    clip = known[min(int(len(known) * oort.clip), len(known) - 1)]
    low = known[0] * 0.999
    spread = max(known[-1] - low, 1e-4)
    value = (np.minimum(utilities, clip) - low) / spread
    value += np.sqrt(0.1 * np.log(number) / np.maximum(last, 1))
    result[tried] = (value * speed_factor(durations, preferred, oort.penalty))[tried]
    return result


def pick(
    utilities: Array,
    durations: Array,
    last: Array,
    tried: Mask,
    *,
    number: int,
    count: int,
    exploration: float,
    preferred: float,
    oort: Oort,
    rng: np.random.Generator,
) -> Picked:
    """Choose `count` clients: floor(count (1 - exploration)) by score, the rest among those never tried."""
    everybody = len(utilities)
    count = min(count, everybody)
    score = scores(utilities, durations, last, tried, number=number, preferred=preferred, oort=oort)
    exploited: list[int] = []
    known = np.flatnonzero(tried)
    places = min(int(count * (1.0 - exploration)), len(known))
    if places:
        ranked = known[np.argsort(-score[known], kind="stable")]
        cut = oort.cut_off * score[ranked[min(places, len(ranked) - 1)]]
        # Never fewer than the places: negative scores would put the cut-off above the rank it comes from.
        good = ranked[: max(places, int((score[ranked] >= cut).sum()))]
        exploited = _weighted(good, score[good], places, rng)
    fresh = np.flatnonzero(~tried)
    places = min(count - len(exploited), len(fresh))
    explored: list[int] = []
    if places:
        hope = utilities * speed_factor(durations, preferred, oort.penalty)
        ranked = fresh[np.argsort(-hope[fresh], kind="stable")][: max(places, int(oort.window * places))]
        explored = _weighted(ranked, hope[ranked], places, rng)
    rest = np.setdiff1d(np.arange(everybody), [*exploited, *explored])
    missing = count - len(exploited) - len(explored)
    filled = [int(i) for i in rng.choice(rest, size=missing, replace=False)] if missing else []
    return Picked(exploited, explored, filled)


def next_exploration(exploration: float, oort: Oort, *, untried_left: bool) -> float:
    """Exploration decays to its floor, and ends when everybody has been tried."""
    return max(exploration * oort.explore_decay, oort.explore_least) if untried_left else 0.0


def paced(percentile: float, gains: list[float], number: int, oort: Oort) -> float:
    """The pacer: every `pace_every` rounds, relax T when exploited utility is flat, tighten when it jumps.

    `gains` holds the mean utility of the exploited clients of each past round.
    """
    window = oort.pace_every
    if number < 2 * window or number % window or len(gains) < 2 * window:
        return percentile
    before, now = sum(gains[-2 * window : -window]), sum(gains[-window:])
    if abs(now - before) <= 0.1 * before:
        return min(100.0, percentile + oort.pace_step)
    if abs(now - before) >= 5.0 * before:
        return max(oort.pace_step, percentile - oort.pace_step)
    return percentile


def top(losses: Array, durations: Array, *, count: int, preferred: float, penalty: float = 2.0) -> list[int]:
    """HACCS' simplified Oort: the `count` highest loss * (T / t) ** penalty; ties to the lower position."""
    value = losses * speed_factor(durations, preferred, penalty)
    return [int(i) for i in np.argsort(-value, kind="stable")[:count]]


def _weighted(
    positions: NDArray[np.int64], weights: Array, count: int, rng: np.random.Generator
) -> list[int]:
    """`count` of the positions without replacement, by weight (equal ones if all are zero)."""
    clipped = np.maximum(weights, 0.0)
    if np.count_nonzero(clipped) < count:
        clipped = clipped + (clipped.sum() or 1.0) * 1e-9
    return [int(i) for i in rng.choice(positions, size=count, replace=False, p=clipped / clipped.sum())]


@method("oort", family="selection", paper="https://arxiv.org/abs/2010.06081")
def oort(train: Train, *, weighting: Weighting = "equal", select: ByUtility = inline(ByUtility)) -> Method:
    """Oort (Lai et al., 2021): clients with much to learn from that are fast enough, and some never tried before.

    Utility |B| sqrt(mean squared loss), plus a bonus for clients long unused, times (T / t) ^ penalty for those slower
    than T, the duration at `percentile`, which the pacer moves. A falling share of the places goes to untried clients.
    """
    base, local = random(train, weighting=weighting), TrainWithUtility(train=train)
    return replace(base, name="oort", select=select, local=local, after=(remember_utilities,))


@method("oort-simple", family="selection")
def oort_simple(
    train: Train, *, weighting: Weighting = "equal", select: ByPenalisedLoss = inline(ByPenalisedLoss)
) -> Method:
    """Oort as the HACCS paper compares with it: every round the highest losses, times (T / t) ^ penalty for devices
    slower than T, the duration at `percentile` of the reachable ones; no exploration, bonus or pacer.
    """
    after = (remember_losses,)
    return replace(random(train, weighting=weighting), name="oort-simple", select=select, after=after)
