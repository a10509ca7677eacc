"""So many clients of every group."""

from __future__ import annotations

from covey.core import GROUPS, NOTHING, Round, part
from covey.parts.selection.plain import PerRound


@part("select", "each-group", needs=(GROUPS,), shows=NOTHING)
class EachGroup(PerRound):
    """`per_round` of the reachable members of each group (or all of a smaller one), uniformly."""

    def __call__(self, now: Round) -> list[int]:
        chosen: list[int] = []
        for group in sorted(set(now.groups.values())):
            members = [client for client in now.here if now.groups.get(client) == group]
            count = min(self.per_round, len(members))
            chosen += (
                now.stream("select", group).choice(members, count, replace=False).tolist() if members else []
            )
        return sorted(chosen)
