"""FLIPS (Bhope et al.), HiCS-FL (Chen and Vikalo), DivFL (Balakrishnan et al.), REFL (Abdelmoniem et al.)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from covey.core.round import Method
from covey.methods.baselines import fedavg
from covey.methods.cafa import by_label_mix
from covey.methods.divfl import Diverse
from covey.methods.flips import Equitable
from covey.methods.hics import ByEntropy, remember_biases
from covey.methods.refl import LeastAvailable
from covey.methods.stale import FirstArrivals
from covey.parts.mix.average import Average
from covey.parts.mix.late import FreshAndLate
from covey.parts.selection.clustered_sampling import remember_sketches
from covey.parts.steps import Train
from covey.settings.ranges import Count
from covey.settings.registry import register
from covey.settings.signatures import takes, validated


@register("method", "flips", family="selection")
@validated
def flips(train: Train, *, per_round: Count = 10, clusters: Count | None = None) -> Method:
    """FedAvg in which every cluster of like label mixes is served equally, and in it who worked least often.

    Label shares are told once and clustered by K-means (Bhope et al., 2023).

    Args:
        per_round: how many clients work in a round.
        clusters: how many clusters of label mixes; none: by the best silhouette.
    """
    return Method(
        name="flips",
        group=by_label_mix(clusters=clusters),
        select=Equitable(per_round=per_round),
        local=train,
        mix=Average(),
    )


@register("method", "hics", family="selection")
@validated
@takes(ByEntropy)
def hics(train: Train, **entropy: Any) -> Method:
    """FedAvg that prefers clients of even label mixes, which the server reads off the output biases of their updates.

    H = entropy of softmax(update of the output biases / temperature); clusters by angle + weight |H - H'| are drawn
    with probability ~ exp(sharpness mean H) (Chen and Vikalo, 2024, HiCS-FL, with a constant sharpness).
    """
    return replace(fedavg(train), name="hics", select=ByEntropy(**entropy), after=(remember_biases,))


@register("method", "divfl", family="selection")
@validated
def divfl(train: Train, *, per_round: Count = 10) -> Method:
    """FedAvg on those clients whose last updates stand best for everybody's.

    Greedily, each next client lowers most the sum over all clients of the distance to the nearest chosen update
    (Balakrishnan et al., 2022; updates as sketches of 512 numbers).

    Args:
        per_round: how many clients work in a round.
    """
    return Method(
        name="divfl",
        select=Diverse(per_round=per_round),
        local=train,
        mix=Average(weighting="equal"),
        after=(remember_sketches,),
    )


@register("method", "refl", family="selection")
@validated
@takes(FreshAndLate)
def refl(train: Train, *, per_round: Count = 10, **late: Any) -> Method:
    """The least available clients work while they are there, and replies that come late still count.

    A round ends with `per_round` arrivals; what arrives later counts (1 - beta) / (1 + staleness) + beta (1 - exp(-d /
    largest d)) beside 1 for a fresh reply, d how far it would move the fresh ones' mean (Abdelmoniem et al., 2023;
    availability is the share of rounds so far, in place of a forecast).

    Args:
        per_round: how many clients work in a round.
    """
    return Method(
        name="refl",
        select=LeastAvailable(per_round=per_round),
        local=train,
        gather=FirstArrivals(count=per_round),
        mix=FreshAndLate(**late),
    )
