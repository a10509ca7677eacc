"""REFL: resource-efficient federated learning (Abdelmoniem et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from covey.core.needs import Key
from covey.core.round import Round
from covey.core.shows import ROUNDS_OF_SUMS, Shows
from covey.parts.selection.plain import PerRound
from covey.settings.registry import register
from covey.settings.signatures import validated

PRESENCE: Key[dict[int, int]] = Key("refl.presence")  # in how many rounds each client could be reached


@register("select part", "least-available")
@validated
@dataclass(frozen=True, kw_only=True)
class LeastAvailable(PerRound):
    """Those who were reachable least often come first, while they are there (REFL); ties are drawn."""

    shows: ClassVar[Shows] = Shows(what="single updates that come late", instead=ROUNDS_OF_SUMS)

    def __call__(self, now: Round) -> list[int]:
        seen = dict(PRESENCE.get(now.memory, {}))
        seen |= {i: seen.get(i, 0) + 1 for i in now.here}
        PRESENCE.keep(now.memory, seen)
        drawn = now.stream("select").permutation(now.here).tolist()
        return sorted(sorted(drawn, key=lambda i: seen[i])[: self.per_round])
