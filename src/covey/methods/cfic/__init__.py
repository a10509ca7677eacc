"""CFIC: cluster federated learning with intra-cluster correction (Yang et al., 2025)."""

from __future__ import annotations

from typing import Literal

from covey.core import Method, Select, Update, method
from covey.errors import UserError
from covey.methods.cfic.absent import AbsentRemembered
from covey.parts.group.label_feature import ByNoisyLabel, LabelWhenChosen, by_label
from covey.parts.mix.average import Average
from covey.parts.selection.clusters import EveryCluster, Quota
from covey.parts.selection.plain import Uniform
from covey.parts.steps.train import Train
from covey.parts.update.clusters import AdaptiveCorrection, Among, ClusterCorrection, CorrectionScale
from covey.settings import Count, DecayRate, Epsilon, NotNegative, PartBelowOne


@method("cfic", family="label skew", paper="https://doi.org/10.32604/cmc.2025.064103")
def cfic(
    train: Train,
    *,
    per_round: Count = 10,
    alpha: PartBelowOne = 0.9,
    beta: NotNegative = 0.5,
    scale: CorrectionScale = "relative",
    decay: DecayRate = 1.0,
    adaptive: bool = False,
    directions: Literal["clusters", "average"] = "clusters",
    sampling: Literal["clusters", "uniform"] = "clusters",
    absent: Literal["remembered", "forgotten", "always"] = "remembered",
    quota: Quota = "equal",
    lazy: bool = False,
    epsilon: Epsilon | None = None,
) -> Method:
    """Every cluster works in every round, and the average is corrected along the clusters' directions.

    Clients tell one number, the label L = argmax |D_i - 1/C| that stands out most; equal labels are a cluster. A round
    draws as evenly from the clusters as it can. With w the old model and g_i the average over cluster i's clients,
    u = sum (n_i / n)(g_i - w) / ||g_i - w||; h <- alpha h - beta u; w <- sum (n_k / n) w_k - h (Yang et al., 2025).
    Kept up, the correction adds beta / (1 - alpha) average updates per round (`scale = "relative"`; "absolute" takes
    beta as a length, as printed), less as decay^(t-1) falls. alpha = beta = 0 is FedAvg with that sampling. `lazy`
    learns a client's label only when it is first chosen, `quota = "published"` draws one per cluster and the rest by
    chance. `directions = "average"` corrects along the average update alone, which with `sampling = "uniform"` is
    FedAvgM. A cluster without a place counts with its last move; `absent = "forgotten"` leaves it out, as in the paper,
    and "always" lets it count in FedAvgM, too.
    `adaptive` starts from alpha and beta and sets them from how far the clusters' directions agree.

    Args:
        alpha: how much of the correction is kept from round to round.
        beta: strength of the correction.
        scale: of beta: relative to the average update, or absolute, a length as printed.
        decay: factor on the correction in each round.
        adaptive: whether alpha and beta follow how far the clusters' directions agree.
        directions: corrects along the clusters' directions, or along the average update alone.
        sampling: draws evenly from the clusters, or uniformly from all clients.
        absent: clusters without a place are remembered where their directions count, or always, or forgotten.
        quota: equal shares of the clusters, or published: one per cluster and the rest by chance.
        lazy: whether a client's label becomes known only when it is first chosen.
        epsilon: privacy loss of telling the label, by randomised response; none tells it exactly.
    """
    if lazy and epsilon is not None:
        raise UserError(f"epsilon is {epsilon!r}, but lazy tells labels exactly; leave one of them out")
    if adaptive and (scale, decay) != ("relative", 1.0):
        raise UserError(
            f"adaptive sets beta itself: scale is {scale!r} and decay {decay!r}; allowed: relative, 1.0"
        )
    select: Select = (
        Uniform(per_round=per_round)
        if sampling == "uniform"
        else EveryCluster(per_round=per_round, quota=quota)
    )
    among: Among = "groups" if directions == "clusters" else "everybody"
    update: Update = (
        AdaptiveCorrection(alpha=alpha, beta=beta, among=among)
        if adaptive
        else ClusterCorrection(alpha=alpha, beta=beta, scale=scale, decay=decay, among=among)
    )
    if (absent == "always" or (absent == "remembered" and directions == "clusters")) and beta > 0:
        update = AbsentRemembered(update=update)
    return Method(
        name="cfic",
        group=None if lazy else by_label if epsilon is None else ByNoisyLabel(epsilon=epsilon),
        select=LabelWhenChosen(select=select) if lazy else select,
        local=train,
        mix=Average(),
        update=update,
    )
