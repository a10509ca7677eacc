"""CFIC: cluster federated learning with intra-cluster correction (Yang et al., 2025)."""

from __future__ import annotations

from covey.core import Method
from covey.group.label_feature import LabelWhenChosen, by_label
from covey.mix.average import Average
from covey.select.clusters import EveryCluster, Quota
from covey.steps import Train
from covey.update.clusters import ClusterCorrection, Scale


def cfic(
    train: Train,
    *,
    per_round: int = 10,
    alpha: float = 0.5,
    beta: float = 0.5,
    scale: Scale = "relative",
    decay: float = 1.0,
    quota: Quota = "equal",
    lazy: bool = False,
) -> Method:
    """Sample every cluster, and correct the average along the clusters' directions."""
    select = EveryCluster(count=per_round, quota=quota)
    return Method(
        name="cfic",
        group=None if lazy else by_label,
        select=LabelWhenChosen(select=select) if lazy else select,
        local=train,
        mix=Average(),
        update=ClusterCorrection(alpha=alpha, beta=beta, scale=scale, decay=decay),
    )
