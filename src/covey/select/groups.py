"""So many clients of every group."""

from __future__ import annotations

from dataclasses import dataclass

from covey.core import Round
from covey.errors import UserError


@dataclass(frozen=True, kw_only=True)
class EachGroup:
    """`count` of the reachable members of each group (or all of a smaller one), uniformly."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError(f"per_round is {self.count}; it must be at least 1")

    def __call__(self, now: Round) -> list[int]:
        chosen: list[int] = []
        for group in sorted(set(now.groups.values())):
            members = [client for client in now.here if now.groups.get(client) == group]
            count = min(self.count, len(members))
            chosen += (
                now.stream("select", group).choice(members, count, replace=False).tolist() if members else []
            )
        return sorted(chosen)
