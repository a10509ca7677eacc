"""Only the largest group works."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from covey.core.needs import KNOWN_GROUPS, Facts
from covey.core.round import Round
from covey.core.shows import NOTHING, Shows
from covey.parts.selection.plain import PerRound
from covey.settings.registry import register
from covey.settings.signatures import validated


@register("select part", "largest-group")
@validated
@dataclass(frozen=True, kw_only=True)
class LargestGroup(PerRound):
    """So many reachable clients of the largest group, which CAFA calls the IID cluster.

    Of equally large groups, that of the lowest number. When nobody of it can be reached, the next largest.
    """

    needs: ClassVar[Facts] = (KNOWN_GROUPS,)
    shows: ClassVar[Shows] = NOTHING

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
