"""Schedulers that HACCS is compared with: who works, by chance, speed, loss or utility."""

from __future__ import annotations

from covey.core import Method
from covey.mix.average import Average, Weighting
from covey.select import Uniform
from covey.select.feedback import Losses, remember_losses
from covey.select.oort import ByPenalisedLoss, ByUtility, remember_utilities
from covey.select.power_of_choice import PowerOfChoice
from covey.select.tifl import ByTier
from covey.settings import validated
from covey.steps import Train
from covey.steps.utility import TrainWithUtility


@validated
def random(train: Train, *, per_round: int = 10, weighting: Weighting = "equal") -> Method:
    """Whoever is drawn works: clients uniformly at random, averaged with equal weights, HACCS' first baseline.

    Args:
        per_round: how many clients work in a round.
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    return Method(
        name="random",
        select=Uniform(per_round=per_round),
        local=train,
        mix=Average(weighting=weighting),
    )


@validated
def tifl(
    train: Train,
    *,
    per_round: int = 10,
    tiers: int = 5,
    interval: int = 5,
    rounds: int = 200,
    losses: Losses = "reported",
    weighting: Weighting = "equal",
) -> Method:
    """TiFL (Chai et al., 2020): clients of like speed form tiers, and each round one tier works.

    A tier is drawn by probability while it has credits (ceil(rounds / tiers)). When the tier in work made no progress
    over `interval` rounds, tiers are ranked by loss: the worst of n gets probability n / (n (n + 1) / 2), and so on.
    `losses` says how the losses are known: reported with training, asked (and paid) each round, or as published.

    Args:
        per_round: how many clients work in a round.
        tiers: how many tiers, fewer if they could not fill a round.
        interval: rounds without progress after which the tiers are ranked anew.
        rounds: of the whole run; a tier has ceil(rounds / tiers) credits.
        losses: how losses are known: reported with training, asked (and paid) each round, or as published.
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    return Method(
        name="tifl",
        select=ByTier(
            per_round=per_round, step=train, tiers=tiers, interval=interval, rounds=rounds, losses=losses
        ),
        local=train,
        mix=Average(weighting=weighting),
        after=(remember_losses,),
    )


@validated
def oort(
    train: Train,
    *,
    per_round: int = 10,
    explore: float = 0.9,
    explore_decay: float = 0.95,
    explore_least: float = 0.2,
    clip: float = 0.98,
    cut_off: float = 0.7,
    penalty: float = 2.0,
    percentile: float = 10.0,
    pace_every: int = 20,
    pace_step: float = 5.0,
    window: float = 5.0,
    weighting: Weighting = "equal",
) -> Method:
    """Oort (Lai et al., 2021): clients with much to learn from that are fast enough, and some never tried before.

    Utility |B| sqrt(mean squared loss), plus a bonus for clients long unused, times (T / t) ^ penalty for those slower
    than T, the duration at `percentile`, which the pacer moves. A falling share of the places goes to untried clients.

    Args:
        per_round: how many clients work in a round.
        explore: share of the places for clients never tried, at first.
        explore_decay: factor on that share in each round.
        explore_least: the lowest that share falls to.
        clip: quantile at which utilities are cut.
        cut_off: share of the score at the last exploited rank that still qualifies.
        penalty: exponent of (T / t) for clients slower than T.
        percentile: of the clients' durations: T at first.
        pace_every: the pacer's window in rounds.
        pace_step: the pacer's step in percentiles.
        window: candidates for each explored place.
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    select = ByUtility(
        train=train,
        per_round=per_round,
        explore=explore,
        explore_decay=explore_decay,
        explore_least=explore_least,
        clip=clip,
        cut_off=cut_off,
        penalty=penalty,
        percentile=percentile,
        pace_every=pace_every,
        pace_step=pace_step,
        window=window,
    )
    return Method(
        name="oort",
        select=select,
        local=TrainWithUtility(train=train),
        mix=Average(weighting=weighting),
        after=(remember_utilities,),
    )


@validated
def oort_simple(
    train: Train,
    *,
    per_round: int = 10,
    percentile: float = 10.0,
    penalty: float = 2.0,
    losses: Losses = "reported",
    weighting: Weighting = "equal",
) -> Method:
    """Oort as the HACCS paper compares with it: every round the highest losses, times (T / t) ^ penalty for devices
    slower than T, the duration at `percentile` of the reachable ones; no exploration, bonus or pacer.

    Args:
        per_round: how many clients work in a round.
        percentile: of the clients' durations: T at first.
        penalty: exponent of (T / t) for clients slower than T.
        losses: how losses are known: reported with training, asked (and paid) each round, or as published.
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    return Method(
        name="oort-simple",
        select=ByPenalisedLoss(
            per_round=per_round, step=train, percentile=percentile, penalty=penalty, losses=losses
        ),
        local=train,
        mix=Average(weighting=weighting),
        after=(remember_losses,),
    )


@validated
def power_of_choice(
    train: Train, *, per_round: int = 10, candidates: int = 20, weighting: Weighting = "equal"
) -> Method:
    """Power-of-choice (Cho et al., 2020): of some candidates drawn by their data, those with the highest loss work.

    The candidates evaluate the present model first, which costs a transfer and time.

    Args:
        per_round: how many clients work in a round.
        candidates: clients that evaluate the model first.
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    return Method(
        name="power-of-choice",
        select=PowerOfChoice(per_round=per_round, candidates=candidates),
        local=train,
        mix=Average(weighting=weighting),
    )
