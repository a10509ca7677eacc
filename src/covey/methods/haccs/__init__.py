"""HACCS (Wolfrath et al., 2022): clusters of devices with similar data, and rounds made of clusters, not of devices."""

from dataclasses import fields, replace
from typing import Annotated, Any, Literal

from covey.core import Method, method, part
from covey.errors import UserError
from covey.methods.baselines import random
from covey.methods.haccs.grouping import BySummary, Distance, MissingLabels
from covey.parts.group.density import Algorithm, Density, Extract
from covey.parts.mix.average import Weighting
from covey.parts.selection.fair import FairSchedule
from covey.parts.selection.feedback import remember_losses
from covey.parts.selection.haccs import ByCluster
from covey.parts.steps.privacy import Privacy, SummaryNoise
from covey.parts.steps.summaries import (
    FeatureSummary,
    HistogramBins,
    JointSummary,
    LabelSummary,
    TargetSummary,
)
from covey.parts.steps.train import Train
from covey.settings import (
    Count,
    Epsilon,
    Natural,
    Positive,
    Range,
    Share,
    first_difference,
    inline,
    settings_of,
)

SummaryKind = Literal["labels", "targets", "features", "joint"]
RoundSchedule = Literal["fair", "published"]
SUMMARIES: dict[SummaryKind, type[LabelSummary | TargetSummary | FeatureSummary | JointSummary]] = {
    "labels": LabelSummary,
    "targets": TargetSummary,
    "features": FeatureSummary,
    "joint": JointSummary,
}


@part("group", "summary")
def by_summary(
    *,
    summary: SummaryKind = "labels",
    epsilon: Epsilon | None = 1.0,
    noise: SummaryNoise = "simulated",
    budget: Positive | None = None,
    label_space: Count | None = None,
    bins: HistogramBins = 20,
    low: float = 0.0,
    high: float = 1.0,
    bound: Positive | None = None,
    distance: Distance | None = None,
    missing: MissingLabels = "apart",
    algorithm: Algorithm = "optics",
    extract: Extract | None = None,
    eps: Positive | None = None,
    xi: Annotated[float, Range(above=0, below=1)] = 0.05,
    min_samples: Annotated[int, Range(2)] = 2,
    watch: Natural = 0,
    tolerance: Share = 0.1,
    recluster: Share = 0.2,
) -> BySummary:
    """HACCS' clusters: private histograms of labels, P(y), features, P(X|y), or both, P(X, y), grouped by density.

    Args:
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
        missing: features: a label that one of two clients lacks counts 1/sqrt 2 in their distance, or is ignored.
        algorithm: of the clustering by density: optics, dbscan or hdbscan.
        extract: how OPTICS cuts: dbscan or xi; none is xi for features, else dbscan.
        eps: radius of a neighbourhood; none is 0.25 for labels, 0.5 for joint.
        xi: steepness that ends a cluster (OPTICS).
        min_samples: devices that make a dense place.
        watch: rounds between two checks of whether data changed; 0 never asks.
        tolerance: change of a summary (total variation) from which a client counts as changed.
        recluster: share of changed clients from which everything is clustered anew.
    """
    privacy = Privacy(epsilon=epsilon, noise=noise, budget=budget)
    given: dict[str, Any] = {"bins": bins, "bound": bound, "high": high, "labels": label_space, "low": low}
    used = {field.name: given.pop(field.name) for field in fields(SUMMARIES[summary]) if field.name in given}
    for name, value in given.items():
        setting = "label_space" if name == "labels" else name
        if value != settings_of(by_summary)[setting].default:
            raise UserError(f'{setting} is {value!r}, which summary = "{summary}" does not use; leave it out')
    if missing != "apart" and summary != "features":
        raise UserError(f'missing is "{missing}", which summary = "{summary}" does not use; leave it out')
    extract = extract or ("xi" if summary == "features" else "dbscan")
    distance = distance or ("hellinger" if summary == "joint" else "l2")
    eps = (0.5 if summary == "joint" else 0.25) if eps is None else eps
    return BySummary(
        ask=SUMMARIES[summary](privacy=privacy, **used),
        distance=distance,
        missing=missing,
        density=Density(algorithm=algorithm, extract=extract, eps=eps, xi=xi, min_samples=min_samples),
        watch=watch,
        tolerance=tolerance,
        recluster=recluster,
    )


@method("haccs", family="selection")
def haccs(
    train: Train,
    *,
    schedule: RoundSchedule = "fair",
    weighting: Weighting = "equal",
    fair: FairSchedule = inline(FairSchedule),
    published: ByCluster = inline(ByCluster),
    group: BySummary = inline(by_summary),
) -> Method:
    """Clients tell a private histogram, the server clusters similar ones, and rounds are made of clusters, not devices.

    The histogram is of the labels (of a regression: of the targets), P(y), of the features by label, P(X|y), or of both
    together, P(X, y); clusters are found by density (Wolfrath et al., 2022).

    `schedule = "fair"` fills the round that is worth most for its time, so that slow devices work together now and then
    and everybody's data are seen; `"published"` draws clusters by latency and loss (eq. 6 and 7: theta = rho tau +
    (1 - rho) loss share) and takes the fastest reachable device of each.

    Args:
        schedule: fair fills the round that is worth most for its time; published draws clusters (eq. 7).
    """
    if schedule == "fair":
        usual = ByCluster(step=train, per_round=published.per_round, losses=published.losses)
        if unused := first_difference(published, usual):
            raise UserError(
                f'{unused[0]} is {unused[1]!r}, which only schedule = "published" knows; say that, or leave it out'
            )
    select = fair if schedule == "fair" else published
    after = (remember_losses,) if select.losses == "reported" else ()
    return replace(random(train, weighting=weighting), name="haccs", group=group, select=select, after=after)
