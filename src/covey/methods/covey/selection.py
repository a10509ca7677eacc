"""Who of a cluster works: the fair schedule over the label groups of every cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from covey.core import GROUPS, Budget, Facts, Round, Select, Shows, needs_of, private_form, shows_of
from covey.core.shows import NOTHING, SAME_AS_COVEY
from covey.methods.covey.grouping import PORTRAITS, outstanding_label
from covey.methods.covey.many import OUTSTANDING
from covey.parts.selection.fair import LAST_CHOSEN, pool


@dataclass(frozen=True, kw_only=True)
class WithinClusters:
    """Lets `select` choose among finer groups: every cluster is cut by its members' label features.

    The label feature (CFIC, eq. 2) is read off the label counts of the clients' portraits, so nobody is asked again.
    """

    select: Select

    @property
    def shows(self) -> Shows:
        shown = shows_of(self.select)
        return NOTHING if shown == NOTHING else Shows(what="every client's exact loss", instead=SAME_AS_COVEY)

    def privately(self, budget: Budget) -> WithinClusters:
        """The same, by a selection that knows no losses."""
        return replace(self, select=private_form(self.select, budget))

    @property
    def needs(self) -> Facts:
        return (GROUPS, PORTRAITS, *needs_of(self.select))

    def __call__(self, now: Round) -> list[int]:
        here = pool(now)
        finer = label_groups(now, None if here is now.here else {*here, *LAST_CHOSEN.get(now.memory, {})})
        chosen = self.select(replace(now, here=here, groups=finer))
        now.notes["who was chosen"] = {"text": told_in_words(now, here, finer, chosen)}
        return chosen


def told_in_words(now: Round, pool: Sequence[int], finer: Mapping[int, int], chosen: Sequence[int]) -> str:
    """The choice for the report."""
    last = LAST_CHOSEN.get(now.memory, {})
    waits = max((now.number - last.get(i, 0) for i in pool), default=0)
    among = "" if pool is now.here else f" (chosen among {len(pool):,} of them, drawn at random)"
    return (
        f"Round {now.number}: {len(set(chosen))} of {len(now.here)} clients work{among}, from "
        f"{kinds(now.groups, chosen)} of {kinds(now.groups, pool)} clusters and {kinds(finer, chosen)} of "
        f"{kinds(finer, pool)} groups (clients of one cluster whose most outstanding label is the same). A round is "
        "chosen as a whole, for what it is worth in its time: large groups, groups with a high loss and those who "
        f"waited long are worth more. The longest wait is {waits} {'round' if waits == 1 else 'rounds'}."
    )


def kinds(groups: Mapping[int, int], ids: Sequence[int]) -> int:
    """How many groups these clients are in."""
    return len({groups[i] for i in ids if i in groups})


def label_groups(now: Round, ids: Collection[int] | None = None) -> dict[int, int]:
    """The group inside its cluster of everybody, or of these: those whose label stands out most are one."""
    told, known = PORTRAITS.of(now.memory), OUTSTANDING.get(now.memory, {})
    wanted = [*told, *known] if ids is None else ids
    labels = {
        i: outstanding_label(told[i]) if i in told else known[i] for i in wanted if i in told or i in known
    }
    groups = now.groups if ids is None else {i: now.groups[i] for i in labels if i in now.groups}
    return cut_by_label(groups, labels)


def cut_by_label(groups: Mapping[int, int], labels: Mapping[int, int]) -> dict[int, int]:
    """One number for every pair of group and label, the same in every round."""
    base = 1 + max(labels.values(), default=0)
    return {i: group * base + labels[i] for i, group in groups.items() if i in labels}
