"""Flocks that live on: found from private portraits, found anew when clients come or their data change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from covey.core.needs import GROUPS, MODEL_PER_GROUP, SEVERAL_MODELS, Facts, Key, declares
from covey.core.round import Reply, Round
from covey.core.shows import NOTHING, Shows, by_answers, showing
from covey.methods.covey.arranged import Joined, joined
from covey.methods.covey.class_distances import ClassDistances, class_distances, on_a_map
from covey.methods.covey.flocks import Cut, flocks, renamed
from covey.methods.covey.portrait import DescribeClasses, Portrait, portraits_of
from covey.parts.ask_once import Ask, answers, ask_once
from covey.parts.banks import one_per_parent
from covey.parts.group.figures import note_groups
from covey.settings.ranges import Count, Natural
from covey.settings.registry import register
from covey.settings.signatures import validated

Told = dict[str, Any]  # counts, bits and the shape of what they tell, as they came

PORTRAITS: Key[dict[int, Told]] = Key("portraits", 'set group = "flocks"')
PARENTS: Key[list[int]] = Key("the flock that each flock came from")  # itself, for the first ones


@validated
@dataclass(frozen=True, kw_only=True)
class ByPortrait:
    """Everybody describes its classes once; clients whose classes look alike, or lie alike, are a flock.

    With `every` > 0 whoever is here describes itself again every so many rounds. Where anything new was told, flocks
    are found anew, and each keeps the number (so the model) that most of its members had. `join`: kinds that look
    different while their classes lie alike are one flock.
    """

    describe: DescribeClasses = DescribeClasses()
    every: Natural = 5
    min_size: Count = 2
    join: bool = True

    gives: ClassVar[Facts] = (GROUPS, PORTRAITS)

    @property
    def shows(self) -> Shows:
        return by_answers(self.describe)

    def __call__(self, now: Round) -> dict[int, int]:
        ask: Ask[Told] = answers(now, self.describe, self.told)
        heard = ask_once(now, PORTRAITS, ask)
        changed = bool(heard.news)
        if self.every and now.number % self.every == 0:
            again = ask([i for i in now.here if i in heard.known and i not in heard.news])
            moved = {i: told for i, told in again.items() if not same(told, heard.known[i])}
            changed = changed or bool(moved)
            PORTRAITS.keep(now.memory, heard.known | moved)
        return self.found(now) if changed else now.groups

    def told(self, reply: Reply) -> Told | None:
        """What a reply tells, if its parts fit together."""
        fits = portraits_of(reply.stats, self.describe.flip) is not None
        return {name: reply.stats[name] for name in ("counts", "bits", "views")} if fits else None

    def found(self, now: Round) -> dict[int, int]:
        """The flocks of all clients that ever described themselves."""
        portraits = portraits_in(now, self.describe.flip)
        ids = tuple(portraits)
        compared, cut = finest(list(portraits.values()), self.min_size)
        views = list(zip(*portraits.values(), strict=True))
        one = joined(views, cut.labels) if self.join else Joined(labels=cut.labels)
        parents = PARENTS.get(now.memory, [])
        groups = renamed(one.labels, ids, now.groups, len(parents))
        PARENTS.keep(now.memory, with_parents(parents, groups, now.groups))
        now.notes["flocks"] = told_in_words(cut, one.likeness, groups)
        places = dict(zip(ids, on_a_map(compared), strict=True))
        shares = {i: one[0].counts / max(1.0, float(one[0].counts.sum())) for i, one in portraits.items()}
        note_groups(now, places, groups, shares=shares, title="Clients by how their classes look")
        return groups


def finest(portraits: Sequence[Sequence[Portrait]], min_size: int) -> tuple[ClassDistances, Cut]:
    """The view in which most flocks stand apart, the first of equal ones: what one view cannot see another may."""
    seen = [class_distances(view) for view in zip(*portraits, strict=True)]
    cuts = [flocks(compared, min_size=min_size) for compared in seen]
    best = max(range(len(cuts)), key=lambda view: cuts[view].count)
    return seen[best], cuts[best]


def with_parents(parents: Sequence[int], groups: Mapping[int, int], before: Mapping[int, int]) -> list[int]:
    """Every new flock comes from the one that most of its members were in; of newcomers alone, from none: itself."""
    found = list(parents)
    for flock in range(len(found), max(groups.values(), default=-1) + 1):
        left = [before[i] for i, now_in in groups.items() if now_in == flock and i in before]
        found.append(max(sorted(set(left)), key=left.count) if left else flock)
    return found


@register("bank part", "per-flock")
@showing(NOTHING)
@declares(needs=(GROUPS, PORTRAITS), gives=(MODEL_PER_GROUP, SEVERAL_MODELS))
def one_per_flock(now: Round) -> Tensor:
    """A row for every flock; one that was found later starts from the model of the flock that it came from."""
    return one_per_parent(now, PARENTS.of(now.memory))


def portraits_in(now: Round, flip: float) -> dict[int, tuple[Portrait, ...]]:
    """Everybody's portraits, by ascending id; clients whose portraits have another size than most are left out."""
    made = {i: portraits_of(told, flip) for i, told in sorted(PORTRAITS.of(now.memory).items())}
    whole = {i: views for i, views in made.items() if views is not None}
    shapes = [tuple(view.halves.shape for view in views) for views in whole.values()]
    usual = max(set(shapes), key=shapes.count) if shapes else ()
    return {i: v for (i, v), shape in zip(whole.items(), shapes, strict=True) if shape == usual}


def same(told: Told, before: Told) -> bool:
    """Whether a client describes itself as it did before; noise that was drawn anew is no change."""
    return np.array_equal(told["bits"], before["bits"])


def told_in_words(cut: Cut, likeness: float, groups: Mapping[int, int]) -> dict[str, str]:
    """The decision for the report."""
    if cut.count == 1:
        return {"text": f"The {len(groups)} clients' classes look alike: one flock, one model for everybody."}
    sizes = sorted((list(groups.values()).count(flock) for flock in set(groups.values())), reverse=True)
    differ = (
        f"A class differs between the two nearest kinds {cut.apart:.2f} times as much as two classes differ at one "
        f"client, and {cut.inside:.2f} times inside a kind."
    )
    alike = f"classes lie alike (correlation {likeness:.2f} or more), so that one model learns them from more data"
    if len(sizes) == 1:
        return {
            "text": f"The clients' classes look different, in {cut.count} kinds, but their {alike}: one flock. {differ}"
        }
    shared = (
        "" if len(sizes) == cut.count else f" Of {cut.count} kinds some became one flock, as their {alike}."
    )
    return {
        "text": f"The clients' classes look different: {len(sizes)} flocks of {', '.join(map(str, sizes))} clients, "
        f"each with a model of its own.{shared} {differ}"
    }
