"""FedAsync (Xie et al., 2019) and FedBuff (Nguyen et al., 2022): the server continues when replies arrive, old or
not."""

from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from covey.core import ROUNDS_OF_SUMS, Method, Mixing, Reply, Round, Shows, Step, method, part
from covey.parts.mix.late import from_here, staleness
from covey.parts.steps.train import Train
from covey.settings import Count, NotNegative, Positive, Share, validated

SHOWS_EACH = Shows(what="single updates, one by one as they come", instead=ROUNDS_OF_SUMS)


@validated
class FirstArrivals:
    """A round ends with the first `count` replies, whenever their task was sent; the others stay under way.

    Args:
        count: how many replies make a round.
    """

    shows_each: ClassVar[bool] = True  # the server sees every reply, as in a run without privacy
    count: Count = 5

    def __call__(self, now: Round, step: Step) -> list[Reply]:
        replies, now.tasks, now.sent = now.fleet.arrivals(step, now.tasks, self.count)
        return replies


@part("select", "keep-busy", shows=SHOWS_EACH)
class KeepBusy:
    """As many new clients as it takes for `at_once` of them to be training, uniformly."""

    at_once: Count = 10

    def __call__(self, now: Round) -> list[int]:
        count = min(max(0, self.at_once - len(now.fleet.underway)), len(now.here))
        drawn = now.stream("select").permutation(now.here)[:count]
        return sorted(int(i) for i in drawn)


def fading(staleness: np.ndarray, power: float) -> np.ndarray:
    """(1 + staleness)^-power: the weight of a reply that started from a model that many rounds old."""
    return np.asarray((1.0 + staleness) ** -power)


@part("mix", "stale", shows=SHOWS_EACH)
class StaleAverage:
    """Replies count less the older the model is that they started from; each model of the bank moves towards them.

    whole (FedAsync): w <- (1 - a) w + a mean of s_k w_k, a = rate mean of s_k. Else (FedBuff): w <- w + rate mean of
    s_k (w_k - w as it was sent). s_k = (1 + staleness)^-power, staleness in rounds.

    Args:
        rate: of the server.
        power: how fast old replies fade; 0: not at all.
        whole: whether models are averaged, and not their updates.
    """

    rate: Positive = 1.0
    power: NotNegative = 0.5
    whole: bool = False

    def __call__(self, now: Round) -> Mixing:
        count = len(now.models)
        if not self.whole:
            now.replies = from_here(now)
        counts, slots = fading(staleness(now), self.power), np.array([reply.slot for reply in now.replies])
        matrix = np.hstack([np.eye(count), np.zeros((count, len(now.replies)))])
        for slot in np.unique(slots):
            here = np.flatnonzero(slots == slot)
            share = self.rate * counts[here] / len(here)
            matrix[slot, slot] = 1 - share.sum()
            matrix[slot, count + here] = share
        return Mixing(factors=[csr_array(matrix)])


@method("fedasync", family="asynchronous", paper="https://arxiv.org/abs/1903.03934")
def fedasync(train: Train, *, at_once: Count = 10, rate: Share = 0.6, power: NotNegative = 0.5) -> Method:
    """Every reply is mixed into the model as soon as it arrives; nobody waits for anybody.

    w <- (1 - a) w + a w_k with a = rate (1 + staleness)^-power (Xie et al., 2019, polynomial). A round is one arrival.

    Args:
        rate: share of a fresh reply in the new model.
        power: how fast old replies fade; 0: not at all.
    """
    return Method(
        name="fedasync",
        select=KeepBusy(at_once=at_once),
        local=train,
        gather=FirstArrivals(count=1),
        mix=StaleAverage(rate=rate, power=power, whole=True),
    )


@method("fedbuff", family="asynchronous", paper="https://arxiv.org/abs/2106.06639")
def fedbuff(
    train: Train, *, at_once: Count = 10, buffer: Count = 5, rate: Positive = 1.0, power: NotNegative = 0.5
) -> Method:
    """The model moves whenever `buffer` updates have arrived, whoever they are from and however old their start.

    w <- w + rate mean of (1 + staleness)^-power (w_k - w as it was sent) (Nguyen et al., 2022). A round is one buffer;
    with as many clients at once as fit into it, it is FedAvg with equal weights.

    Args:
        buffer: how many updates make a new model.
        rate: of the server.
        power: how fast old replies fade; 0: not at all.
    """
    return Method(
        name="fedbuff",
        select=KeepBusy(at_once=at_once),
        local=train,
        gather=FirstArrivals(count=buffer),
        mix=StaleAverage(rate=rate, power=power),
    )
