"""REFL: resource-efficient federated learning (Abdelmoniem et al., 2023)."""

from dataclasses import replace

from covey.core import ROUNDS_OF_SUMS, Key, Method, Round, Shows, method, part
from covey.methods.baselines import fedavg
from covey.methods.stale import FirstArrivals
from covey.parts.mix.late import FreshAndLate
from covey.parts.selection.plain import PerRound
from covey.parts.steps import Train
from covey.settings import Count, inline

PRESENCE: Key[dict[int, int]] = Key("refl.presence")  # in how many rounds each client could be reached


@part("select", "least-available", shows=Shows(what="single updates that come late", instead=ROUNDS_OF_SUMS))
class LeastAvailable(PerRound):
    """Those who were reachable least often come first, while they are there (REFL); ties are drawn."""

    def __call__(self, now: Round) -> list[int]:
        seen = dict(PRESENCE.get(now.memory, {}))
        seen |= {i: seen.get(i, 0) + 1 for i in now.here}
        PRESENCE.keep(now.memory, seen)
        drawn = now.stream("select").permutation(now.here).tolist()
        return sorted(sorted(drawn, key=lambda i: seen[i])[: self.per_round])


@method("refl", family="selection", paper="https://arxiv.org/abs/2111.01108")
def refl(train: Train, *, per_round: Count = 10, mix: FreshAndLate = inline(FreshAndLate)) -> Method:
    """The least available clients work while they are there, and replies that come late still count.

    A round ends with `per_round` arrivals; what arrives later counts (1 - beta) / (1 + staleness) + beta (1 - exp(-d /
    largest d)) beside 1 for a fresh reply, d how far it would move the fresh ones' mean (Abdelmoniem et al., 2023;
    availability is the share of rounds so far, in place of a forecast).
    """
    select, gather = LeastAvailable(per_round=per_round), FirstArrivals(count=per_round)
    return replace(fedavg(train), name="refl", select=select, gather=gather, mix=mix)
