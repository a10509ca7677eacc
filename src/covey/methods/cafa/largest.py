"""Only the largest group works."""

from __future__ import annotations

from collections import Counter

from covey.core import KNOWN_GROUPS, NOTHING, Round, part
from covey.parts.selection.plain import PerRound


@part("select", "largest-group", needs=(KNOWN_GROUPS,), shows=NOTHING)
class LargestGroup(PerRound):
    """So many reachable clients of the largest group, which CAFA calls the IID cluster.

    Of equally large groups, that of the lowest number. When nobody of it can be reached, the next largest.
    """

    def __call__(self, now: Round) -> list[int]:
        sizes = Counter(now.groups.values())
        reachable = {now.groups[i] for i in now.here if i in now.groups}
        if not reachable:
            members = now.here
        else:
            best = min(reachable, key=lambda group: (-sizes[group], group))
            members = [i for i in now.here if now.groups.get(i) == best]
        drawn = now.stream("select").choice(members, size=min(self.per_round, len(members)), replace=False)
        return sorted(int(i) for i in drawn)
