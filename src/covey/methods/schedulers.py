"""TiFL (Chai et al.), Oort (Lai et al.) and power-of-choice (Cho et al.), which HACCS is compared with, and chance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from covey.core.round import Method
from covey.methods.baselines import fedavg
from covey.methods.oort import ByPenalisedLoss, ByUtility, TrainWithUtility, remember_utilities
from covey.methods.power_of_choice import PowerOfChoice
from covey.methods.tifl import ByTier
from covey.parts.mix.average import Average, Weighting
from covey.parts.selection.feedback import remember_losses
from covey.parts.steps.train import Train
from covey.settings.ranges import Count
from covey.settings.registry import register
from covey.settings.signatures import takes, validated


@register("method", "random", family="selection")
@validated
def random(train: Train, *, per_round: Count = 10, weighting: Weighting = "equal") -> Method:
    """Whoever is drawn works: clients uniformly at random, averaged with equal weights, HACCS' first baseline.

    Args:
        per_round: how many clients work in a round.
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    return replace(fedavg(train, per_round=per_round, weighting=weighting), name="random")


@register("method", "tifl", family="selection")
@validated
@takes(ByTier)
def tifl(train: Train, *, weighting: Weighting = "equal", **tiers: Any) -> Method:
    """TiFL (Chai et al., 2020): clients of like speed form tiers, and each round one tier works.

    A tier is drawn by probability while it has credits (ceil(rounds / tiers)). When the tier in work made no progress
    over `interval` rounds, tiers are ranked by loss: the worst of n gets probability n / (n (n + 1) / 2), and so on.
    `losses` says how the losses are known: reported with training, asked (and paid) each round, or as published.

    Args:
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    select = ByTier(step=train, **tiers)
    return replace(random(train, weighting=weighting), name="tifl", select=select, after=(remember_losses,))


@register("method", "oort", family="selection")
@validated
@takes(ByUtility)
def oort(train: Train, *, weighting: Weighting = "equal", **utility: Any) -> Method:
    """Oort (Lai et al., 2021): clients with much to learn from that are fast enough, and some never tried before.

    Utility |B| sqrt(mean squared loss), plus a bonus for clients long unused, times (T / t) ^ penalty for those slower
    than T, the duration at `percentile`, which the pacer moves. A falling share of the places goes to untried clients.

    Args:
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    return Method(
        name="oort",
        select=ByUtility(train=train, **utility),
        local=TrainWithUtility(train=train),
        mix=Average(weighting=weighting),
        after=(remember_utilities,),
    )


@register("method", "oort-simple", family="selection")
@validated
@takes(ByPenalisedLoss)
def oort_simple(train: Train, *, weighting: Weighting = "equal", **penalty: Any) -> Method:
    """Oort as the HACCS paper compares with it: every round the highest losses, times (T / t) ^ penalty for devices
    slower than T, the duration at `percentile` of the reachable ones; no exploration, bonus or pacer.

    Args:
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    select, after = ByPenalisedLoss(step=train, **penalty), (remember_losses,)
    return replace(random(train, weighting=weighting), name="oort-simple", select=select, after=after)


@register("method", "power-of-choice", family="selection")
@validated
def power_of_choice(
    train: Train, *, per_round: Count = 10, candidates: Count = 20, weighting: Weighting = "equal"
) -> Method:
    """Power-of-choice (Cho et al., 2020): of some candidates drawn by their data, those with the highest loss work.

    The candidates evaluate the present model first, which costs a transfer and time.

    Args:
        per_round: how many clients work in a round.
        candidates: clients that evaluate the model first.
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    select = PowerOfChoice(per_round=per_round, candidates=candidates)
    return replace(random(train, weighting=weighting), name="power-of-choice", select=select)
