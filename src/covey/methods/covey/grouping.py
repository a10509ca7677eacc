"""Clusters that live on: found from private portraits, found anew when clients come or their data change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor

from covey.core import Budget, Facts, Key, Method, Reply, Round, Shows, part
from covey.core.needs import GROUPS, MODEL_PER_GROUP, SEVERAL_MODELS
from covey.core.shows import NOTHING, by_answers
from covey.methods.covey.many import COMPARED, NEAREST, OUTSTANDING, Nearest, blocks
from covey.parts.ask_once import Ask, answers, ask_once
from covey.parts.banks import one_per_parent
from covey.parts.group.figures import note_groups
from covey.parts.group.label_feature import label_feature
from covey.parts.portraits.arrangement import Joined, cluster_portrait, joined_clusters
from covey.parts.portraits.clusters import (
    ClassDistances,
    ClusterCut,
    class_distances,
    clusters,
    on_a_map,
    renamed,
)
from covey.parts.portraits.portrait import DescribeClasses, Portrait
from covey.parts.selection.plain import drawn_clients
from covey.parts.update.clusters import AdaptiveCorrection
from covey.privacy.sketch import SketchClasses
from covey.settings import Count, Natural, validated

if TYPE_CHECKING:
    from covey.privacy.secure import SecureSums

NOBODY = 10**6  # clients in each cluster: everybody is one
CORRECTED = 4.0  # epsilon of samples from which on a correction is worth the noise that it adds up

ToldPortraits = dict[str, Any]  # counts, bits and the shape of what they tell, as they came

PORTRAITS: Key[dict[int, ToldPortraits]] = Key("portraits", 'set group = "portraits"')
PARENTS: Key[list[int]] = Key("the cluster that each cluster came from")  # itself, for the first ones


@validated
class ByPortrait:
    """Everybody describes its classes once; clients whose classes look alike, or lie alike, are a cluster.

    With `every` > 0 whoever is here describes itself again every `every` rounds. Where anything new was told, clusters
    are found anew, and each keeps the number (so the model) that most of its members had. `join`: clusters that look
    different while their classes lie alike are one cluster.
    """

    describe: DescribeClasses | SketchClasses = DescribeClasses()
    every: Natural = 5
    min_size: Count = 2
    join: bool = True

    gives: ClassVar[Facts] = (GROUPS, PORTRAITS)

    @property
    def shows(self) -> Shows:
        return by_answers(self.describe)

    def privately(self, budget: Budget) -> ByPortrait:
        """Sketches under noise, asked for once."""
        if self.describe.counted:
            return self
        return replace(self, describe=SketchClasses(epsilon=budget.epsilon, delta=budget.delta), every=0)

    def hiding_samples(self, method: Method, epsilon: float) -> Method:
        """Training at the rate that was set, as doubling it doubles the noise of every step.

        Below `CORRECTED` epsilon there is no correction: directions are mostly noise then, and momentum adds them up.
        """
        from covey.methods.covey import as_set

        noise_alone = epsilon < CORRECTED and isinstance(method.update, AdaptiveCorrection)
        return replace(method, local=as_set(method.local), update=None if noise_alone else method.update)

    def hiding_clients(self, method: Method, noise: float, secure: SecureSums | None) -> Method:
        """Prototypes of which clients choose at home, in place of portraits."""
        from covey.methods.covey.devices import hiding_clients
        from covey.privacy.candidates import SPLITS, Prototypes

        server = method.bank is one_per_cluster
        several = self.min_size < NOBODY
        found = Prototypes(noise=noise, splits=SPLITS if several else 0, join=self.join, secure=secure)
        return hiding_clients(method, found) if server else method

    def __call__(self, now: Round) -> dict[int, int]:
        if len(now.seen) > COMPARED and isinstance(self.describe, DescribeClasses):
            return self.by_sample(now, self.describe.flip)
        ask: Ask[ToldPortraits] = answers(now, self.describe, self.told)
        heard = ask_once(now, PORTRAITS, ask)
        if isinstance(self.describe, SketchClasses):
            for client in heard.news:
                now.fleet.ledger.lose(client, self.describe.loss)
        changed = bool(heard.news) | self.asked_again(now, ask, heard.news)
        return self.found(now).groups if changed else now.groups

    def by_sample(self, now: Round, flip: float) -> dict[int, int]:
        """The same in a large fleet: clusters of a sample, and everybody else by the nearest of them."""
        ask: Ask[ToldPortraits] = answers(now, self.describe, self.told)
        changed = not PORTRAITS.get(now.memory, {}) or not NEAREST.get(now.memory, {})
        with now.fleet.ledger.at_once():
            if changed:
                PORTRAITS.keep(
                    now.memory, dict(ask(drawn_clients(now.here, COMPARED, now.stream("compared clients"))))
                )
            changed = changed | self.asked_again(now, ask)
            found = self.found(now) if changed else None
            sample = PORTRAITS.of(now.memory)
            groups = {**now.groups, **(found.groups if found else {})}
            if found:
                NEAREST.keep(now.memory, found.nearest.plain())
                others = [i for i in now.here if i not in sample]
            else:
                others = [i for i in now.here if i not in groups and i not in sample]
                others += self.in_turn(now)
            self.place(now, ask, others, groups, flip)
        if found:
            now.notes["clusters"] = {
                "text": f"{told_in_words(found.cut, found.likeness, groups)} {len(sample):,} of the {len(groups):,} "
                "clients were compared each with each; the others joined the nearest."
            }
        return groups

    def place(
        self, now: Round, ask: Ask[ToldPortraits], ids: Sequence[int], groups: dict[int, int], flip: float
    ) -> None:
        """Asks these clients block by block, and puts each into the group of the cluster that it is nearest to."""
        if not ids:
            return
        nearest, outstanding = Nearest.in_memory(now.memory), dict(OUTSTANDING.get(now.memory, {}))
        for block in blocks(ids):
            with now.fleet.answers.forgetting():
                told = ask(block)
            groups.update(nearest.groups(told, flip))
            outstanding.update({i: outstanding_label(one) for i, one in told.items()})
        OUTSTANDING.keep(now.memory, outstanding)

    def in_turn(self, now: Round) -> list[int]:
        """Who else describes itself again in this round: as many as were compared, others each time."""
        if not self.every or now.number % self.every:
            return []
        first = now.number // self.every * COMPARED
        ids = [
            now.here[place % len(now.here)] for place in range(first, first + min(COMPARED, len(now.here)))
        ]
        sample = PORTRAITS.of(now.memory)
        return [i for i in ids if i not in sample and i in now.groups]

    def asked_again(self, now: Round, ask: Ask[ToldPortraits], news: Container[int] = ()) -> bool:
        """Whether it is time to ask again those whose portraits are kept, and any of them differs."""
        if not self.every or now.number % self.every:
            return False
        known, here = PORTRAITS.of(now.memory), set(now.here)
        again = ask([i for i in known if i in here and i not in news])
        moved = {i: told for i, told in again.items() if not same(told, known[i])}
        PORTRAITS.keep(now.memory, known | moved)
        return bool(moved)

    def told(self, reply: Reply) -> ToldPortraits | None:
        """What a reply tells, if its parts fit together."""
        fits = self.describe.fits(reply.stats)
        return {name: reply.stats[name] for name in self.describe.told} if fits else None

    def found(self, now: Round) -> Found:
        """The clusters of all clients whose portraits are kept."""
        portraits = portraits_in(now, self.describe)
        ids = tuple(portraits)
        best, compared, cut = finest(list(portraits.values()), self.min_size)
        views = list(zip(*portraits.values(), strict=True))
        one = joined_clusters(views, cut.labels) if self.join else Joined(labels=cut.labels)
        parents = PARENTS.get(now.memory, [])
        groups = renamed(one.labels, ids, now.groups, len(parents))
        PARENTS.keep(now.memory, with_parents(parents, groups, now.groups))
        now.notes["clusters"] = {"text": told_in_words(cut, one.likeness, groups)}
        places = dict(zip(ids, on_a_map(compared), strict=True))
        shares = {i: one[0].counts / max(1.0, float(one[0].counts.sum())) for i, one in portraits.items()}
        note_groups(now, places, groups, shares=shares, title="Clients by how their classes look")
        return Found(ids=ids, groups=groups, views=views, view=best, cut=cut, likeness=one.likeness)


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """Clusters as they were found: of whom, in which view, and what it showed."""

    ids: Sequence[int]
    groups: dict[int, int]
    views: Sequence[Sequence[Portrait]]
    view: int
    cut: ClusterCut
    likeness: float

    @property
    def nearest(self) -> Nearest:
        """What others are placed by: the portraits of the clusters before any were joined."""
        inside = [self.cut.labels == cluster for cluster in range(self.cut.count)]
        names = [self.groups[self.ids[int(np.flatnonzero(members)[0])]] for members in inside]
        common = [cluster_portrait(self.views[self.view], members) for members in inside]
        return Nearest.of(self.view, common, names, [int(members.sum()) for members in inside])


def finest(portraits: Sequence[Sequence[Portrait]], min_size: int) -> tuple[int, ClassDistances, ClusterCut]:
    """The view that separates most clusters, the first of equals: what one view cannot see, another may."""
    seen = [class_distances(view) for view in zip(*portraits, strict=True)]
    cuts = [clusters(compared, min_size=min_size) for compared in seen]
    best = max(range(len(cuts)), key=lambda view: cuts[view].count)
    return best, seen[best], cuts[best]


def outstanding_label(told: ToldPortraits) -> int:
    """The label that stands out most at a client, of the counts that it told."""
    return label_feature(np.rint(told["counts"]).astype(np.int64))


def with_parents(parents: Sequence[int], groups: Mapping[int, int], before: Mapping[int, int]) -> list[int]:
    """For every new cluster the old one that most of its members were in; itself where all members are unseen."""
    found = list(parents)
    for cluster in range(len(found), max(groups.values(), default=-1) + 1):
        left = [before[i] for i, now_in in groups.items() if now_in == cluster and i in before]
        found.append(max(sorted(set(left)), key=left.count) if left else cluster)
    return found


@part(
    "bank", "per-cluster", shows=NOTHING, needs=(GROUPS, PORTRAITS), gives=(MODEL_PER_GROUP, SEVERAL_MODELS)
)
def one_per_cluster(now: Round) -> Tensor:
    """A row for every cluster; one that was found later starts from the model of the cluster that it came from."""
    return one_per_parent(now, PARENTS.of(now.memory))


def portraits_in(now: Round, describe: DescribeClasses | SketchClasses) -> dict[int, tuple[Portrait, ...]]:
    """Everybody's portraits, by ascending id; clients whose portraits have another size than most are left out."""
    made = {i: describe.portraits(told) for i, told in sorted(PORTRAITS.of(now.memory).items())}
    whole = {i: views for i, views in made.items() if views is not None}
    shapes = [tuple(view.halves.shape for view in views) for views in whole.values()]
    usual = max(set(shapes), key=shapes.count) if shapes else ()
    return {i: v for (i, v), shape in zip(whole.items(), shapes, strict=True) if shape == usual}


def same(told: ToldPortraits, before: ToldPortraits) -> bool:
    """Whether a client describes itself as it did before; noise that was drawn anew is no change."""
    return all(np.array_equal(told[name], before[name]) for name in told if name != "counts")


def told_in_words(cut: ClusterCut, likeness: float, groups: Mapping[int, int]) -> str:
    """How clusters were found, in words for the report."""
    blind = f" {cut.unknown:.0%} of the pairs of clients have no class in common: nothing is known of these."
    blind = blind if cut.unknown else ""
    if cut.count == 1:
        return f"The {len(groups)} clients' classes look alike: one cluster, one model for everybody.{blind}"
    sizes = sorted(Counter(groups.values()).values(), reverse=True)
    if np.isinf(cut.apart):
        return (
            f"The clients fall into {cut.count} sets that have no class in common, of "
            f"{', '.join(map(str, sizes))} clients: nobody needs the classes of another set, so each has a model of "
            "its own. Whether their classes would look alike is not known."
        )
    differ = (
        f"A class differs between the two nearest clusters {cut.apart:.2f} times as much as two classes differ at one "
        f"client, and {cut.inside:.2f} times inside a cluster."
    )
    alike = f"classes lie alike (correlation {likeness:.2f} or more), so that one model learns them from more data"
    if len(sizes) == 1:
        ways = f"The clients' classes look different, in {cut.count} ways"
        return f"{ways}, but their {alike}: one cluster. {differ}{blind}"
    shared = (
        "" if len(sizes) == cut.count else f" Some of {cut.count} clusters were merged, as their {alike}."
    )
    return (
        f"The clients' classes look different: {len(sizes)} clusters of {', '.join(map(str, sizes))} clients, "
        f"each with a model of its own.{shared} {differ}{blind}"
    )
