"""No model for so few clients that it would be about them: small groups are merged."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from covey.core import Group, Key, Round, like

FOUND: Key[dict[int, int]] = Key("private.groups")  # as the grouping made them


@dataclass(frozen=True, kw_only=True)
class AtLeast:
    """The method's groups, with those of fewer than `least` clients merged."""

    group: Group
    least: int

    needs, gives = like("group")

    def __call__(self, now: Round) -> dict[int, int]:
        now.groups = dict(FOUND.get(now.memory, now.groups))
        found = self.group(now)
        FOUND.keep(now.memory, dict(found))
        merged = merged_groups(found, self.least)
        now.notes["small groups"] = {
            "text": f"{len(set(found.values()))} groups were found; {len(set(merged.values()))} are left after those "
            f"of fewer than {self.least} clients were merged."
        }
        return merged


def merged_groups(groups: Mapping[int, int], least: int) -> dict[int, int]:
    """Groups below `least` become one, under the smallest of their numbers; if that is still small, it joins the
    smallest of the others."""
    sizes = Counter(groups.values())
    small = sorted(group for group, size in sizes.items() if size < least)
    if not small:
        return dict(groups)
    target = small[0]
    large = sorted((size, group) for group, size in sizes.items() if size >= least)
    if large and sum(sizes[group] for group in small) < least:
        target = large[0][1]
    return {client: target if group in small else group for client, group in groups.items()}
