"""Flocks that live on: found from private portraits, found anew when clients come or their data change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covey.core.needs import GROUPS, MODEL_PER_GROUP, SEVERAL_MODELS, Facts, Key, declares, gives_of, needs_of
from covey.core.round import Group, Reply, Round
from covey.core.shows import NOTHING, Shows, by_answers, showing
from covey.methods.covey.clusters import (
    ENOUGH,
    LEAST,
    ClassDistances,
    Cut,
    Labels,
    class_distances,
    flocks,
    numbered,
    on_a_map,
    renamed,
)
from covey.methods.covey.portrait import DescribeClasses, Portrait, portraits_of, sizes_of
from covey.parts.ask_once import Ask, answers, ask_once
from covey.parts.banks import one_per_parent
from covey.parts.group.figures import note_groups
from covey.parts.steps.judged import JUDGEMENTS
from covey.settings.ranges import Count, Natural
from covey.settings.registry import register
from covey.settings.signatures import validated

# standard errors by which own training is better than the average of all: each group its own model
PART = 2.0
STAY = -1.5  # by which it is worse, when the rounds of trial are over: one model for good

Decision = Literal["trial", "apart", "together"]
FOUND: Key[dict[int, int]] = Key("flocks as found")
FOUND_PARENTS: Key[list[int]] = Key("the flock that each flock as found came from")
DECISION: Key[Decision] = Key("one model or many")
# of each round: samples, right under the model as received, right after training
EVIDENCE: Key[list[list[float]]] = Key("held-out hits", 'add "evidence" to after')


@validated
@dataclass(frozen=True, kw_only=True)
class Together:
    """The groups that `group` finds, as one until the evidence parts them.

    With own and averaged the shares of held-out samples that are right after a client's training and under the average
    that follows, z = (own - averaged) / standard error. Above PART groups part at once, each with the common model to
    start from; after `rounds` of trial they part unless z is below STAY. More groups than before are a new trial.

    Args:
        group: what finds the groups.
        rounds: of trial, at most.
    """

    group: Group
    rounds: Count = 5

    @property
    def needs(self) -> Facts:
        return (EVIDENCE, *needs_of(self.group))

    @property
    def gives(self) -> Facts:
        return gives_of(self.group)

    def __call__(self, now: Round) -> dict[int, int]:
        decision = DECISION.get(now.memory, "trial")
        if decision == "apart":
            return self.group(now)
        before = dict(FOUND.get(now.memory, {}))
        now.groups = dict(before)
        PARENTS.keep(now.memory, FOUND_PARENTS.get(now.memory, []))
        found = self.group(now)
        FOUND.keep(now.memory, dict(found))
        FOUND_PARENTS.keep(now.memory, PARENTS.of(now.memory))
        if len(set(found.values())) > max(1, len(set(before.values()))):
            EVIDENCE.keep(now.memory, [])
            decision = "trial"
        if decision == "trial" and len(set(found.values())) > 1:
            decision = self.decide(now)
        DECISION.keep(now.memory, decision)
        if decision == "apart":
            PARENTS.keep(now.memory, [0] * (1 + max(found.values())))
            return found
        PARENTS.keep(now.memory, [0])
        return dict.fromkeys(found, 0)

    def decide(self, now: Round) -> Decision:
        """What the evidence so far says."""
        told = EVIDENCE.get(now.memory, [])
        if now.fleet.objective.main != "accuracy":
            return "apart"  # hits cannot be counted
        own, averaged, z = compared(told)
        over = len(told) >= self.rounds
        decision: Decision = "apart" if z > PART or (over and z > STAY) else "together" if over else "trial"
        words = {
            "apart": "so each flock has a model of its own from now on",
            "together": "so all flocks share one model",
            "trial": "so they share one model so far",
        }
        now.notes["one model or many"] = {
            "text": f"After a client's own training {own:.1%} of the samples that it kept out are right, under the "
            f"average of all flocks {averaged:.1%}, a difference of {z:.1f} standard errors: {words[decision]}."
        }
        return decision


def compared(told: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Shares of held-out samples right after own training, and under the averages that followed; the difference in
    standard errors. Nothing is known before the second round."""
    if len(told) < 2:
        return 0.0, 0.0, 0.0
    table = np.array(told)
    own_size, averaged_size = table[:-1, 0].sum(), table[1:, 0].sum()
    if not own_size or not averaged_size:
        return 0.0, 0.0, 0.0
    own, averaged = table[:-1, 2].sum() / own_size, table[1:, 1].sum() / averaged_size
    error = math.sqrt(own * (1 - own) / own_size + averaged * (1 - averaged) / averaged_size)
    return float(own), float(averaged), float((own - averaged) / error) if error else 0.0


@declares(needs=(JUDGEMENTS,), gives=(EVIDENCE,))
def keep_evidence(now: Round) -> None:
    """Counts this round's held-out hits, while the groups are on trial."""
    if DECISION.get(now.memory, "trial") == "trial":
        told = [reply.stats for reply in now.replies if "scores" in reply.stats]
        rows = [float(s["judged"]) * np.array([1.0, s["scores"][0], s["scores"][-1]]) for s in told]
        sums = np.sum(rows, axis=0).tolist() if rows else [0.0, 0.0, 0.0]
        EVIDENCE.keep(now.memory, [*EVIDENCE.get(now.memory, []), sums])


Floats = NDArray[np.float64]

ALIKE = 0.8  # r from which on classes lie alike: seen are 0.88 and more (brightness to blur), 0.74 and less (turns)
TELLING = 0.2  # share of a flock's class means that is not noise, from which on a view says anything
MISTAKEN = (
    0.25  # of their distance at home: if a class lies so near to another one elsewhere, it is taken for it
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Joined:
    """Flocks after those whose classes lie alike became one, and the lowest likeness r of two that did."""

    labels: Labels
    likeness: float = 1.0


def joined(views: Sequence[Sequence[Portrait]], labels: Labels) -> Joined:
    """The flocks that `labels` names, joined from the most alike on; all flocks of a joint one are alike in pairs.

    `views` holds everybody's portraits, once for each way of looking. Two flocks are alike where every view that tells
    anything says so, and one does.
    """
    count = int(labels.max(initial=0)) + 1
    common = [[flock_portrait(view, labels == flock) for flock in range(count)] for view in views]
    alike = np.ones((count, count))
    for a in range(count):
        for b in range(a):
            alike[a, b] = alike[b, a] = min(likeness(view[a], view[b]) for view in common)
    alike[np.isinf(alike)] = -1.0  # no view tells anything
    sets, lowest = [[flock] for flock in range(count)], 1.0
    while True:
        pairs = [
            (float(alike[np.ix_(sets[a], sets[b])].min()), a, b) for a in range(len(sets)) for b in range(a)
        ]
        best, a, b = max(pairs, default=(0.0, 0, 0))
        if best < ALIKE:
            break
        lowest = min(lowest, best)
        sets[b] += sets.pop(a)
    names = {flock: place for place, members in enumerate(sets) for flock in members}
    return Joined(labels=numbered(np.array([names[int(flock)] for flock in labels])), likeness=lowest)


def flock_portrait(portraits: Sequence[Portrait], members: NDArray[np.bool_]) -> Portrait:
    """What a flock's classes look like: its members' means, weighted as in the distances."""
    chosen = [portrait for portrait, is_in in zip(portraits, members, strict=True) if is_in]
    counts = np.stack([portrait.counts for portrait in chosen])
    seen = np.where(counts >= LEAST, np.minimum(counts, ENOUGH), 0.0)
    total = seen.sum(axis=0)
    sums = np.einsum("ic,ihcd->hcd", seen, np.stack([portrait.halves for portrait in chosen]))
    means = np.divide(sums, total[:, None], out=np.zeros_like(sums), where=total[:, None] > 0)
    return Portrait(counts=total, halves=means)


def likeness(one: Portrait, other: Portrait) -> float:
    """r of two flocks in one view; -1 where a class is taken for another one, infinite where the view tells nothing."""
    both = (one.counts > 0) & (other.counts > 0)
    if both.sum() < 2:
        return np.inf
    a, b = one.halves[:, both], other.halves[:, both]
    from_middle_a, from_middle_b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    own = signal(from_middle_a, from_middle_a), signal(from_middle_b, from_middle_b)
    all_told = (from_middle_a**2).sum() / 2, (from_middle_b**2).sum() / 2
    if min(own[0] / max(all_told[0], 1e-12), own[1] / max(all_told[1], 1e-12)) < TELLING:
        return np.inf
    if is_mistaken(a, b):
        return -1.0
    return signal(from_middle_a, from_middle_b) / float(np.sqrt(own[0] * own[1]))


def signal(a: Floats, b: Floats) -> float:
    """The sum over classes of <A_c, B_c>, without bias: each half of the one with the other half of the other."""
    return float((a[0] * b[1] + a[1] * b[0]).sum() / 2)


def is_mistaken(a: Floats, b: Floats) -> bool:
    """Whether any class of one flock lies where another class of the other one does, for want of a common scale.

    Patients who are ill from another blood pressure on have classes in the same arrangement, and contradict each other.
    """
    different = ~np.eye(a.shape[1], dtype=bool)
    at_home = np.minimum(squares(a, a), squares(b, b))[different]
    floor = float(at_home.mean()) / 10
    return bool((squares(a, b)[different] < MISTAKEN * np.maximum(at_home, floor)).any())


def squares(a: Floats, b: Floats) -> Floats:
    """Unbiased squared distances of all classes of one flock from all of the other."""
    inside_a, inside_b = (a[0] * a[1]).sum(axis=1), (b[0] * b[1]).sum(axis=1)
    return np.asarray(inside_a[:, None] + inside_b[None, :] - a[0] @ b[1].T - a[1] @ b[0].T)


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
        fits = sizes_of(reply.stats) is not None
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
