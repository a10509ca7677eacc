"""Clusters of clients by the mix of their labels (CAFA's CBCC)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.core import GROUPS, Facts, Key, Round, Shows, by_answers
from covey.parts.ask_once import answers, ask_once
from covey.parts.group.figures import note_groups
from covey.parts.group.silhouette import Clusters, cluster
from covey.parts.steps.summaries import LabelSummary

SHARES: Key[dict[int, NDArray[np.float64]]] = Key("label mix")
IID = 0  # the number of the largest cluster, which CAFA calls the IID cluster (eq. 7)


@dataclass(frozen=True, kw_only=True)
class ByLabelMix:
    """Groups by K-means on label shares v_i = n_ic / N_i (eq. 1), k by silhouette unless `clusters` says it.

    A client is asked for its shares once. Clusters are made anew whenever somebody new told his, and stay as they are
    otherwise. They are numbered by size: group 0 is the IID cluster. Who never answered has no group.
    """

    ask: LabelSummary
    clusters: int | None = None

    gives: ClassVar[Facts] = (GROUPS,)

    @property
    def shows(self) -> Shows:
        return by_answers(self.ask)

    def __call__(self, now: Round) -> dict[int, int]:
        heard = ask_once(now, SHARES, answers(now, self.ask, lambda reply: reply.stats.get("shares")))
        if not heard.news:
            return now.groups
        told = heard.known
        ids = sorted(told)
        vectors = np.stack([told[i] for i in ids])
        found = cluster(vectors, now.stream("clusters"), clusters=self.clusters)
        groups = dict(zip(ids, found.labels.tolist(), strict=True))
        self._note(now, told, groups, found)
        return groups

    def _note(self, now: Round, told: Mapping[int, Any], groups: Mapping[int, int], found: Clusters) -> None:
        curve = (found.k, found.score) if found.k else None
        note_groups(now, told, groups, curve=curve, shares=told)
        sizes = np.bincount(found.labels)
        now.notes["clusters"] = {
            "cluster": list(range(len(sizes))),
            "clients": sizes.tolist(),
            "weight of a client": (sizes / sizes.sum()).tolist(),
            "called IID": ["yes" if c == IID else "no" for c in range(len(sizes))],
        }
        now.notes["privacy"] = {
            "text": f"The server sees the label shares of every client. {self.ask.privacy.note()}"
        }
