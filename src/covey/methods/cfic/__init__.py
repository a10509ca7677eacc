"""CFIC: cluster federated learning with intra-cluster correction (Yang et al., 2025)."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from covey.core import (
    KNOWN_GROUPS,
    ONE_MODEL,
    Facts,
    Key,
    Method,
    Reply,
    Round,
    Select,
    Shows,
    Update,
    method,
    needs_of,
    shows_of,
)
from covey.errors import UserError
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
    learns a client's label only when it is first chosen, `quota = "published"` draws one per cluster and the rest at
    random. `directions = "average"` corrects along the average update alone, which with `sampling = "uniform"` is
    FedAvgM. A cluster without a place counts with its last move; `absent = "forgotten"` leaves it out, as in the
    paper,
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
        quota: equal shares of the clusters, or published: one per cluster and the rest at random.
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


# cluster -> who worked for it last, on how many samples, and how far its mean lay from the model that was sent
LAST_MOVES: Key[dict[int, tuple[int, int, Tensor]]] = Key("clusters.last_moves")


@dataclass(frozen=True, kw_only=True)
class AbsentRemembered:
    """Lets every cluster that is missing among the replies stand in with its last move, then updates as `update` says.

    With more clusters than places a round sees only some of the labels; momentum then follows those and forgets the
    others. A stand-in is (old model + the cluster's last mean move), with the samples of that time: it counts in the
    average and in the directions as a reply would. Where no cluster is missing nothing changes, to the bit, and nothing
    is kept. (Jhunjhunwala et al., 2022, keep one move per cluster for the average alone: ClusterFedVARP.)

    Args:
        update: what is done with the average, e.g. CFIC's correction.
    """

    update: Update

    @property
    def shows(self) -> Shows | None:
        return shows_of(self.update)

    @property
    def needs(self) -> Facts:
        return (ONE_MODEL, KNOWN_GROUPS, *needs_of(self.update))

    def __call__(self, now: Round, rows: Tensor) -> Tensor:
        clusters: dict[int, list[Reply]] = {}
        for reply in now.replies:
            if reply.id in now.groups:
                clusters.setdefault(now.groups[reply.id], []).append(reply)
        kept = LAST_MOVES.get(now.memory, {})
        if not kept and set(now.groups.values()) <= set(clusters):
            return self.update(now, rows)
        width = now.fleet.layout.trainable
        old = now.models[0, :width].double()
        absent = {cluster: last for cluster, last in kept.items() if cluster not in clusters}
        moves = {cluster: (who, size, move) for cluster, (who, size, move) in absent.items()}
        for cluster, members in clusters.items():
            size = sum(reply.size for reply in members)
            mean = sum(
                (r.vector[:width].double() * (r.size / size) for r in members if r.vector is not None), -old
            )
            moves[cluster] = (members[-1].id, size, mean.float())
        LAST_MOVES.keep(now.memory, dict(sorted(moves.items())))
        stand_ins = [stand_in(now, who, size, old + move.double()) for who, size, move in absent.values()]
        everybody = replace(now, replies=[*now.replies, *stand_ins])
        return self.update(everybody, with_stand_ins(now, rows, stand_ins, width))


def stand_in(now: Round, who: int, size: int, vector: Tensor) -> Reply:
    """What a cluster would reply if it did again what it last did; its buffers are those of the old model."""
    rest = now.models[0, len(vector) :]
    return Reply(id=who, vector=torch.cat([vector.float(), rest]), slot=0, size=size)


def with_stand_ins(now: Round, rows: Tensor, stand_ins: list[Reply], width: int) -> Tensor:
    """The average of the replies and the stand-ins by samples, on the trainable part."""
    present = sum(reply.size for reply in now.replies)
    total = present + sum(reply.size for reply in stand_ins)
    mean = rows[0, :width].double() * (present / total)
    for reply in stand_ins:
        assert reply.vector is not None
        mean += reply.vector[:width].double() * (reply.size / total)
    new = rows.clone()
    new[0, :width] = mean.float()
    return new
