"""So many clients of every group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from covey.core.needs import GROUPS, Facts
from covey.core.round import Round
from covey.core.shows import NOTHING, Shows
from covey.parts.selection.plain import PerRound
from covey.settings.registry import register
from covey.settings.signatures import validated


@register("select part", "each-group")
@validated
@dataclass(frozen=True, kw_only=True)
class EachGroup(PerRound):
    """`per_round` of the reachable members of each group (or all of a smaller one), uniformly."""

    needs: ClassVar[Facts] = (GROUPS,)
    shows: ClassVar[Shows] = NOTHING

    def __call__(self, now: Round) -> list[int]:
        chosen: list[int] = []
        for group in sorted(set(now.groups.values())):
            members = [client for client in now.here if now.groups.get(client) == group]
            count = min(self.per_round, len(members))
            chosen += (
                now.stream("select", group).choice(members, count, replace=False).tolist() if members else []
            )
        return sorted(chosen)
