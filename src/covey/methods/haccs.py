"""HACCS: clusters of devices with like data, and a scheduler that picks clusters rather than devices."""

from __future__ import annotations

from typing import Literal

from covey.core import Method
from covey.errors import UserError
from covey.group.by_summary import BySummary, Distance
from covey.group.density import Algorithm, Density, Extract
from covey.mix.average import Average, Weighting
from covey.ranges import Epsilon
from covey.select.fair import FairSchedule
from covey.select.feedback import Losses, remember_losses
from covey.select.haccs import ByCluster, Draws, Inside, Speed
from covey.settings import validated
from covey.steps import Train
from covey.steps.privacy import Privacy, SummaryNoise
from covey.steps.summaries import FeatureSummary, JointSummary, LabelSummary, TargetSummary

Summary = Literal["labels", "targets", "features", "joint"]


@validated
def haccs(
    train: Train,
    *,
    per_round: int = 10,
    summary: Summary = "labels",
    epsilon: Epsilon | None = 1.0,
    noise: SummaryNoise = "simulated",
    budget: float | None = None,
    label_space: int | None = None,
    bins: int = 20,
    low: float = 0.0,
    high: float = 1.0,
    bound: float | None = None,
    distance: Distance | None = None,
    algorithm: Algorithm = "optics",
    extract: Extract | None = None,
    eps: float | None = None,
    xi: float = 0.05,
    min_samples: int = 2,
    watch: int = 0,
    tolerance: float = 0.1,
    recluster: float = 0.2,
    schedule: Literal["fair", "published"] = "fair",
    losses: Losses = "reported",
    power: float = 0.5,
    rotation: float = 0.5,
    fullness: float = 1.25,
    rho: float = 0.5,
    speed: Speed = "mean",
    squared: bool = False,
    draws: Draws = "weighted",
    inside: Inside = "fastest",
    weighting: Weighting = "equal",
) -> Method:
    """Clients tell a private histogram, the server clusters like ones, and rounds are made of clusters, not of devices.

    The histogram is of the labels (of a regression: of the targets), P(y), of the features by label, P(X|y), or of both
    together, P(X, y); clusters are found by density (Wolfrath et al., 2022).

    `schedule = "fair"` fills the round that is worth most for its time, so that slow devices work together now and then
    and everybody's data are seen; `"published"` draws clusters by latency and loss (eq. 6 and 7: theta = rho tau +
    (1 - rho) loss share) and takes the fastest reachable device of each.

    Args:
        per_round: how many clients work in a round.
        summary: what clients tell: labels or targets (of a regression), P(y); features, P(X|y); or joint, P(X, y).
        epsilon: privacy loss of one summary; none sends exact numbers.
        noise: how the noise is drawn: simulated (repeatable), opendp (secure), published (not private).
        budget: the most epsilon that a client ever spends; none is no limit.
        label_space: number of labels that all agree on; none takes the classes of the data.
        bins: of the histogram of features or targets.
        low: lower end of the histogram of features or targets.
        high: upper end of the histogram of features or targets.
        bound: what one sample may add to the feature histogram; none is no bound (joint: always 1 in all).
        distance: between summaries; none is l2 for labels, hellinger for joint.
        algorithm: of the clustering by density: optics, dbscan or hdbscan.
        extract: how OPTICS cuts: dbscan or xi; none is xi for features, else dbscan.
        eps: radius of a neighbourhood; none is 0.25 for labels, 0.5 for joint.
        xi: steepness that ends a cluster (OPTICS).
        min_samples: devices that make a dense place.
        watch: rounds between two questions whether data changed; 0 never asks.
        tolerance: change of a summary (total variation) from which a client counts as changed.
        recluster: share of changed clients from which everything is clustered anew.
        schedule: fair fills the round that is worth most for its time; published draws clusters (eq. 7).
        losses: how losses are known: reported with training, asked (and paid) each round, or as published.
        power: fair: exponent of a cluster's loss in its worth.
        rotation: fair: weight of a device's own age against its cluster's.
        fullness: fair: how much more a round's worth counts than its time.
        rho: published: weight of latency against loss.
        speed: published: a cluster's latency is the mean of its devices', or the fastest one's.
        squared: published: whether losses are squared first, as in the authors' code.
        draws: published: weighted draws clusters by chance; quasi first gives each its whole share of places.
        inside: published: of a cluster the fastest device works, or one sampled.
        weighting: what a reply counts by: its samples, equally, or its batches.
    """
    if schedule not in ("fair", "published"):
        raise UserError(f'schedule is "{schedule}"; it must be fair or published.')
    select: FairSchedule | ByCluster
    if schedule == "published":
        select = ByCluster(
            per_round=per_round,
            step=train,
            rho=rho,
            speed=speed,
            losses=losses,
            squared=squared,
            draws=draws,
            inside=inside,
        )
    else:
        refuse_unused(rho=(rho, 0.5), speed=(speed, "mean"), squared=(squared, False))
        refuse_unused(draws=(draws, "weighted"), inside=(inside, "fastest"))
        select = FairSchedule(
            per_round=per_round, step=train, losses=losses, power=power, rotation=rotation, fullness=fullness
        )
    return Method(
        name="haccs",
        group=by_summary(
            summary=summary,
            epsilon=epsilon,
            noise=noise,
            budget=budget,
            label_space=label_space,
            bins=bins,
            low=low,
            high=high,
            bound=bound,
            distance=distance,
            algorithm=algorithm,
            extract=extract,
            eps=eps,
            xi=xi,
            min_samples=min_samples,
            watch=watch,
            tolerance=tolerance,
            recluster=recluster,
        ),
        select=select,
        local=train,
        mix=Average(weighting=weighting),
        after=(remember_losses,) if losses == "reported" else (),
    )


@validated
def by_summary(
    *,
    summary: Summary = "labels",
    epsilon: Epsilon | None = 1.0,
    noise: SummaryNoise = "simulated",
    budget: float | None = None,
    label_space: int | None = None,
    bins: int = 20,
    low: float = 0.0,
    high: float = 1.0,
    bound: float | None = None,
    distance: Distance | None = None,
    algorithm: Algorithm = "optics",
    extract: Extract | None = None,
    eps: float | None = None,
    xi: float = 0.05,
    min_samples: int = 2,
    watch: int = 0,
    tolerance: float = 0.1,
    recluster: float = 0.2,
) -> BySummary:
    """HACCS' clusters: private histograms of labels or features, by density. The settings are those of `haccs`."""
    privacy = Privacy(epsilon=epsilon, noise=noise, budget=budget)
    ask: LabelSummary | TargetSummary | FeatureSummary | JointSummary
    if summary == "labels":
        ask = LabelSummary(privacy=privacy, labels=label_space)
    elif summary == "targets":
        ask = TargetSummary(privacy=privacy, bins=bins, low=low, high=high)
    elif summary == "features":
        ask = FeatureSummary(privacy=privacy, labels=label_space, bins=bins, low=low, high=high, bound=bound)
    elif summary == "joint":
        ask = JointSummary(privacy=privacy, labels=label_space, bins=bins, low=low, high=high)
    else:
        raise UserError(f'summary is "{summary}"; it must be labels, targets, features or joint.')
    extract = extract or ("xi" if summary == "features" else "dbscan")
    distance = distance or ("hellinger" if summary == "joint" else "l2")
    eps = (0.5 if summary == "joint" else 0.25) if eps is None else eps
    return BySummary(
        ask=ask,
        distance=distance,
        density=Density(algorithm=algorithm, extract=extract, eps=eps, xi=xi, min_samples=min_samples),
        watch=watch,
        tolerance=tolerance,
        recluster=recluster,
    )


def refuse_unused(**settings: tuple[object, object]) -> None:
    """A setting of the published schedule that is not its default would change nothing."""
    for name, (value, default) in settings.items():
        if value != default:
            raise UserError(
                f'{name} is {value!r}, which only schedule = "published" knows; say that, or leave it out'
            )
