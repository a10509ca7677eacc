"""HACCS' clusters of clients by what they tell about their data, kept up to date while the run is under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array, Labels
from covey.core import GROUPS, Facts, Key, Reply, Round, Shows, by_answers
from covey.errors import UserError
from covey.parts.ask_once import answers, news
from covey.parts.group.density import Density, nearest_fellow, place, reaches
from covey.parts.group.distances import conditional, hellinger_points, l2, over_shared
from covey.parts.group.figures import note_groups
from covey.parts.steps.summaries import FeatureSummary, JointSummary, LabelSummary, TargetSummary
from covey.settings import Natural, Share, validated

Distance = Literal["l2", "hellinger"]
MissingLabels = Literal["apart", "ignored"]
SUMMARIES: Key[dict[str, Any]] = Key("summaries")
MOST_TABLE = 20_000  # clients whose distances are held as a table: 3 GB


@dataclass(frozen=True, eq=False)
class ToldSummary:
    """What clients told so far: row i is client ids[i]'s; `clusters` and how far each of them reaches."""

    ids: Labels
    shares: Array  # [n, labels] or [n, labels, bins]
    has: NDArray[np.bool_]  # [n, labels]; all true for P(y)
    clusters: Labels
    reach: Array  # [clusters]
    changed: int = 0  # unseen clients and changed clients since the last clustering

    def at(self, rows: Labels) -> ToldSummary:
        """Some of the clients, in that order."""
        by_client = {name: getattr(self, name)[rows] for name in ("ids", "shares", "has", "clusters")}
        return replace(self, **by_client)

    @staticmethod
    def of(memory: Mapping[str, Any]) -> ToldSummary | None:
        return ToldSummary(**SUMMARIES.of(memory)) if SUMMARIES.name in memory else None


@validated
class BySummary:
    """Groups by the density of summaries (HACCS, section IV).

    ask: which summary. distance: between shares of P(y) or P(X, y); P(X|y) always takes the mean Hellinger distance
    (eq. 3). watch: every so many rounds clients are asked whether their data moved by more than `tolerance` (total
    variation); 0 never asks. missing: a label that one of two clients lacks sets their P(X|y) apart, or is ignored.
    Unseen clients and moved clients are placed one by one, and nobody else moves, until
    they are more than the share `recluster` of all: then everything is clustered anew.
    """

    ask: LabelSummary | TargetSummary | FeatureSummary | JointSummary
    distance: Distance = "l2"
    density: Density = Density()
    missing: MissingLabels = "apart"
    watch: Natural = 0
    tolerance: Share = 0.1
    recluster: Share = 0.2

    gives: ClassVar[Facts] = (GROUPS,)

    @property
    def shows(self) -> Shows:
        return by_answers(self.ask)

    def __call__(self, now: Round) -> dict[int, int]:
        told = ToldSummary.of(now.memory)
        self._check_room(len({*now.here, *(told.ids.tolist() if told else ())}))
        replies = self._listen(now, told)
        if replies:
            told = self._clustered(told, replies)
            SUMMARIES.keep(now.memory, vars(told))
            self._note(now, told)
        groups = {} if told is None else dict(zip(told.ids.tolist(), told.clusters.tolist(), strict=True))
        alone = max(groups.values(), default=-1) + 1
        silent = [i for i in now.here if i not in groups]
        return {**groups, **{client: alone + place for place, client in enumerate(silent)}}

    def _check_room(self, clients: int) -> None:
        """Said before anybody is asked: feature summaries are compared in a table of everybody with everybody."""
        if isinstance(self.ask, FeatureSummary) and clients > MOST_TABLE:
            raise UserError(
                f"{clients:,} clients are to tell a feature summary; the table of their distances would take "
                f"{8e-9 * clients**2:.0f} GB. Allowed: {MOST_TABLE:,}, or label summaries"
            )

    def _listen(self, now: Round, told: ToldSummary | None) -> list[Reply]:
        """Summaries that are new in this round: of unseen clients, and of clients whose data moved."""
        known = set() if told is None else set(told.ids.tolist())
        ask = answers(now, self.ask, lambda reply: reply if "shares" in reply.stats else None)
        replies = list(news(now, known, ask).values())
        if self.watch and known and now.number % self.watch == 0:
            settled = [i for i in now.here if i in known]
            replies += now.ask(self.ask, settled, tolerance=self.tolerance)
        return sorted((reply for reply in replies if "shares" in reply.stats), key=lambda reply: reply.id)

    def _clustered(self, told: ToldSummary | None, replies: Sequence[Reply]) -> ToldSummary:
        """Everybody's clusters with the new summaries in."""
        fresh = _table(replies)
        if told is None:
            return self._anew(fresh)
        if told.shares.shape[1:] != fresh.shares.shape[1:]:
            raise UserError(
                f"clients told about {told.shares.shape[1]} labels before and about {fresh.shares.shape[1]} now; "
                "all must agree on one label space."
            )
        stays = ~np.isin(told.ids, fresh.ids)
        settled = told.at(np.flatnonzero(stays))
        joined = _stacked(settled, fresh, changed=told.changed + len(fresh.ids))
        if joined.changed > self.recluster * len(joined.ids):
            return self._anew(joined)
        clusters = place(self._distances(fresh, joined, _labels_told(joined)), settled.clusters, told.reach)
        grown = int(clusters.max(initial=-1)) + 1 - len(told.reach)
        middle = float(np.median(told.reach)) if len(told.reach) else 0.0
        return replace(
            joined,
            clusters=np.concatenate([settled.clusters, clusters]),
            reach=np.concatenate([told.reach, np.full(max(grown, 0), middle)]),
        )

    def _anew(self, told: ToldSummary) -> ToldSummary:
        order = np.argsort(told.ids, kind="stable")
        told = told.at(order)
        if told.shares.ndim == 3:
            clusters = self.density(self._distances(told, told, _labels_told(told)), "precomputed")
        else:
            clusters = self.density(self._points(told))
        if self.density.cut is not None:
            reach = np.full(int(clusters.max()) + 1, self.density.cut)
        else:
            reach = reaches(clusters, nearest_fellow(clusters, lambda at: self._inside(told, at)))
        return replace(told, clusters=clusters, reach=reach, changed=0)

    def _inside(self, told: ToldSummary, at: Labels) -> Array:
        some = told.at(at)
        return self._distances(some, some, _labels_told(told))

    def _points(self, told: ToldSummary) -> Array:
        return hellinger_points(told.shares) if self.distance == "hellinger" else told.shares

    def _distances(self, a: ToldSummary, b: ToldSummary, over: NDArray[np.bool_]) -> Array:
        if a.shares.ndim == 3:
            if self.missing == "ignored":
                return over_shared(a.shares, b.shares, a.has, b.has)
            return conditional(a.shares, b.shares, a.has, b.has, over=over)
        left = self._points(a)
        return l2(left, left if a is b else self._points(b))

    def _note(self, now: Round, told: ToldSummary) -> None:
        """For the report: who is where, the shares it was decided by, and what protects them."""
        now.notes["privacy"] = {"text": self.ask.privacy.note()}
        sizes = np.bincount(told.clusters)
        now.notes["clusters"] = {
            "cluster": np.flatnonzero(sizes).tolist(),
            "clients": sizes[sizes > 0].tolist(),
        }
        by_client = dict(zip(told.ids.tolist(), told.shares, strict=True))
        groups = dict(zip(told.ids.tolist(), told.clusters.tolist(), strict=True))
        note_groups(now, by_client, groups, shares=by_client if isinstance(self.ask, LabelSummary) else None)


def _labels_told(told: ToldSummary) -> NDArray[np.bool_]:
    """Labels that anybody has: the mean over labels always runs over these."""
    return np.asarray(told.has.any(axis=0), dtype=bool)


def _table(replies: Sequence[Reply]) -> ToldSummary:
    """Replies as rows, not clustered yet."""
    shares = np.stack([np.asarray(reply.stats["shares"], dtype=np.float64) for reply in replies])
    has = np.stack([reply.stats.get("has", np.ones(shares.shape[1], dtype=bool)) for reply in replies])
    ids = np.array([reply.id for reply in replies], dtype=np.int64)
    return ToldSummary(
        ids, shares, np.asarray(has, dtype=bool), np.full(len(ids), -1, dtype=np.int64), np.zeros(0)
    )


def _stacked(settled: ToldSummary, fresh: ToldSummary, *, changed: int) -> ToldSummary:
    return ToldSummary(
        ids=np.concatenate([settled.ids, fresh.ids]),
        shares=np.concatenate([settled.shares, fresh.shares]),
        has=np.concatenate([settled.has, fresh.has]),
        clusters=np.concatenate([settled.clusters, fresh.clusters]),
        reach=settled.reach,
        changed=changed,
    )
