"""LADD's clustering (Shenaj et al., WACV 2023): clients with pictures of one style share a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.core import Method, Round
from covey.group.membership import Vectors, maintained_groups
from covey.methods.grouped import fedavg_per_group
from covey.mix.average import Weighting
from covey.mix.shared import GroupAverage
from covey.needs import GROUPS, Facts
from covey.ranges import Count, Natural
from covey.settings import takes, validated
from covey.shows import ANY_GROUPS, Shows
from covey.steps.style import Style, StyleShare
from covey.steps.train import Train

RESTARTS = 10
FEWEST, MOST = 4, 19  # LADD tries these numbers of clusters


@dataclass(frozen=True, kw_only=True)
class ByStyle:
    """Everybody sends its mean style once; k-means groups them, k given or by the best silhouette."""

    style: Style
    k: Natural = 0

    gives: ClassVar[Facts] = (GROUPS,)
    shows: ClassVar[Shows] = Shows(
        what="the exact mean amplitudes of every client's pictures", instead=ANY_GROUPS
    )

    def __call__(self, now: Round) -> dict[int, int]:
        return maintained_groups(
            now,
            lambda ids: self.styles(now, ids),
            lambda _, vectors: self.found(now, vectors),
            title="Clients by their style",
        )

    def styles(self, now: Round, ids: Sequence[int]) -> Vectors:
        replies = now.ask(self.style, ids) if ids else []
        return {reply.id: np.asarray(reply.stats["style"], np.float32) for reply in replies}

    def found(self, now: Round, vectors: NDArray[np.float32]) -> NDArray[np.int64]:
        seed = int(now.stream("k-means").integers(2**31))
        labels, tried = style_clusters(vectors, self.k, seed)
        if tried:
            chosen = int(labels.max()) + 1
            now.notes["silhouette"] = {"k": list(tried), "score": list(tried.values()), "chosen": chosen}
        return labels


def style_clusters(
    vectors: NDArray[np.float32], k: int, seed: int
) -> tuple[NDArray[np.int64], dict[int, float]]:
    """K-means (10 restarts) into k groups; k = 0 tries 4 to 19 and takes the best silhouette (ties: fewer groups)."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    distinct = len(np.unique(vectors, axis=0))

    def clusters(count: int) -> NDArray[np.int64]:
        count = min(count, distinct)
        return np.asarray(KMeans(count, n_init=RESTARTS, random_state=seed).fit_predict(vectors), np.int64)

    if k or distinct < 3:
        return clusters(k or distinct), {}
    most = min(MOST, distinct - 1)
    fewest = min(FEWEST, most)
    found = {count: clusters(count) for count in range(fewest, most + 1)}
    scores = {count: float(silhouette_score(vectors, labels)) for count, labels in found.items()}
    return found[max(scores, key=lambda count: scores[count])], scores


@validated
def by_style(*, k: Natural = 0, share: StyleShare = 0.1, per_class: bool = True) -> ByStyle:
    """LADD's clusters: K-means on the pictures' low frequencies, k given or by the best silhouette.

    Args:
        k: how many clusters; 0: as many from 4 to 19 as have the best silhouette.
        share: of a picture's side that the window of low frequencies takes.
        per_class: whether the style is told for each class or for all pictures.
    """
    return ByStyle(style=Style(share=share, per_class=per_class), k=k)


@validated
@takes(by_style)
def ladd(
    train: Train,
    *,
    per_round: Count = 10,
    n_shared: Natural = 0,
    weighting: Weighting = "samples",
    **style: Any,
) -> Method:
    """Clients whose pictures have a similar style train one model together.

    The style is the mean low-frequency amplitude of the pictures' Fourier transform, in a window of `share` of a side
    each way; of each class (as the embedding paper has it) or, with `per_class = false`, of all pictures. K-means
    makes `k` clusters, or as many from 4 to 19 as have the best silhouette. Newcomers go to the nearest centroid.
    Only the clustering is LADD's; the rest of it is for segmentation.

    Args:
        per_round: how many clients work in a round.
        n_shared: how many leading tensors are common to all clusters.
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    grouped = fedavg_per_group("ladd", train, by_style(**style), per_round=per_round)
    return replace(grouped, mix=GroupAverage(weighting=weighting, n_shared=n_shared))
