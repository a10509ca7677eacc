"""Auxo: efficient federated learning via scalable client clustering (Liu et al., SoCC 2023)."""

from __future__ import annotations

from typing import Any

from covey.core import Method
from covey.group.cohorts import ByRewards, RememberRewards, one_per_cohort
from covey.mix.average import Average
from covey.ranges import Count
from covey.rows import to_group
from covey.select.clusters import EveryCluster
from covey.settings import picked, takes, validated
from covey.steps.train import Train


@validated
@takes(ByRewards, RememberRewards)
def auxo(train: Train, *, per_round: Count = 10, **settings: Any) -> Method:
    """One cohort is cut in two again and again, by the directions of the updates that arrive anyway.

    In every round the clients of a cohort are rewarded for being near its mean update, 1 - d / (mean d + deviation of
    d), and told apart by 2-means of their updates' directions; when 60 % of a cohort are known and each half has a
    fifth, the halves part, each with the model so far. A client works where its rewards are highest, and cohorts share
    a round's clients equally (Liu et al., 2023). The number of cohorts is bounded here; the authors' code bounds
    their size instead, which takes hundreds of clients.

    Args:
        per_round: how many clients work in a round.
    """
    return Method(
        name="auxo",
        group=ByRewards(**picked(settings, ByRewards)),
        bank=one_per_cohort,
        select=EveryCluster(per_round=per_round),
        send=to_group,
        local=train,
        mix=Average(),
        after=(RememberRewards(**picked(settings, RememberRewards)),),
    )
