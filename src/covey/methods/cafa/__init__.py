"""CAFA (Zhang et al., 2024): large clusters, and models that do well on others' data, count more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from covey.core import (
    GROUPS,
    KNOWN_GROUPS,
    NOTHING,
    Facts,
    Key,
    Method,
    Round,
    Shows,
    by_answers,
    method,
    part,
)
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.methods.cafa.accuracy import LikenessAverage
from covey.parts.ask_once import answers, ask_once
from covey.parts.group.figures import note_groups
from covey.parts.group.silhouette import Clusters, cluster
from covey.parts.mix.average import Average
from covey.parts.selection.plain import PerRound, drawn_clients
from covey.parts.steps.privacy import Privacy
from covey.parts.steps.summaries import LabelSummary
from covey.parts.steps.train import Train
from covey.settings import Count, UpTo100, first_difference, inline

Evaluation = Literal["balanced", "published"]
HOLDOUT = 0.2  # the paper's share of validation data, where `train.holdout` names none


@part("group", "label-mix")
def by_label_mix(*, clusters: Count | None = None, privacy: Privacy = inline(Privacy)) -> ByLabelMix:
    """CAFA's clusters: K-means on the shares of labels, k by silhouette unless `clusters` says it.

    Args:
        clusters: number of clusters; none takes the best silhouette.
    """
    return ByLabelMix(ask=LabelSummary(privacy=privacy), clusters=clusters)


@part("mix", "likeness")
def by_likeness(
    train: Train,
    *,
    by_cluster: bool = True,
    by_accuracy: bool = True,
    evaluation: Evaluation = "balanced",
    power: UpTo100 = 2.0,
    by_samples: bool = False,
) -> LikenessAverage:
    """CAFA's weights: the size of the client's cluster times the accuracy of its model on the others' data.

    Args:
        by_cluster: whether the size of the cluster counts.
        by_accuracy: whether the accuracy on the others' data counts.
        evaluation: balanced weighs by the mean accuracy of the classes; published is eq. 9-10.
        power: exponent of the balanced accuracy.
        by_samples: whether the number of samples counts, too.
    """
    if by_accuracy and not train.holdout:
        raise UserError("models are judged on validation data: set train.holdout, e.g. 0.2")
    balanced = by_accuracy and evaluation == "balanced"
    return LikenessAverage(
        by_cluster=by_cluster,
        by_accuracy=by_accuracy,
        holdout=train.holdout if by_accuracy else 0.0,
        balanced=balanced,
        power=power if balanced else 1.0,
        by_samples=by_samples,
    )


@method("cafa", family="label skew")
def cafa(
    train: Train,
    *,
    per_round: Count = 6,
    evaluation: Evaluation = "balanced",
    power: UpTo100 = 2.0,
    weighting: Literal["samples", "equal"] | None = None,
    by_cluster: bool | None = None,
    group: ByLabelMix = inline(by_label_mix),
) -> Method:
    """FedAvg in which a model counts by its accuracy on the other clients' data (published: and by its cluster's size).

    Published: before the first round clients tell the shares of their labels, and K-means with k by silhouette groups
    them (CBCC). In every round the chosen clients send their models to each other and score them on validation data
    (ABFA). W = sum of w^K_i w^A_i W_i / sum of w^K_j w^A_j (Zhang et al., eq. 11). The validation data are the share
    `train.holdout`, 0.2 where it is 0. `evaluation = "published"` is the paper: eq. 8 to 11, no weight by samples.
    With `balanced` (the default) w^A is the accuracy by class, mean over the classes, to the `power`, times the number
    of samples; clusters do not weigh, so nobody is asked for label shares: much better where some clients are IID,
    level with FedAvg where all hold few classes (docs/evidence/cafa.md). `weighting` and `by_cluster` set these two by
    themselves. `clusters` fixes k. With `epsilon` the label shares are private: `noise` is how, `budget` what a client
    spends at most.

    Args:
        evaluation: balanced weighs by the mean accuracy of the classes; published is eq. 9-10.
        power: exponent of the balanced accuracy.
        weighting: samples: times the number of samples; equal: not; none: samples if balanced, equal if published.
        by_cluster: whether the size of its cluster weighs a client; none: only if published.
    """
    train = with_validation(train)
    published = evaluation == "published"
    weighed = published if by_cluster is None else by_cluster
    # nobody tells label shares that would change nothing
    if not weighed and (unused := first_difference(group, by_label_mix())):
        raise UserError(
            f"{unused[0]} is {unused[1]!r}, which only clusters that weigh use: set by_cluster = true or "
            'evaluation = "published", or leave it out'
        )
    return replace(
        fedavg(train, per_round=per_round),
        name="cafa",
        group=group if weighed else None,
        mix=by_likeness(
            train,
            by_cluster=weighed,
            evaluation=evaluation,
            power=power,
            by_samples=not published if weighting is None else weighting == "samples",
        ),
    )


@method("abfa", family="label skew")
def abfa(
    train: Train, *, per_round: Count = 6, evaluation: Evaluation = "balanced", power: UpTo100 = 2.0
) -> Method:
    """CAFA without clusters: models weigh by their accuracy on each other's validation data alone.

    w_i = A_i / sum of A_j, with A_i the accuracy of model i over the validation data of all clients of the round
    (eq. 9-10). Those data are the share `train.holdout`, 0.2 where it is 0. `evaluation`: with `balanced` A_i is the
    accuracy by class, mean over the classes, to the `power`; with `published` it is eq. 9-10.

    Args:
        evaluation: balanced weighs by the mean accuracy of the classes; published is eq. 9-10.
        power: exponent of the balanced accuracy.
    """
    train = with_validation(train)
    mix = by_likeness(train, by_cluster=False, evaluation=evaluation, power=power)
    return replace(fedavg(train, per_round=per_round), name="abfa", mix=mix)


@method("cbcc", family="label skew")
def cbcc(train: Train, *, per_round: Count = 6, group: ByLabelMix = inline(by_label_mix)) -> Method:
    """CAFA without cross-evaluation: models weigh by the size of their client's cluster alone.

    w_i = |C(i)| / n with C(i) the client's cluster by label shares (eq. 8), renormalised over the round.
    """
    mix = by_likeness(train, by_accuracy=False)
    return replace(fedavg(train, per_round=per_round), name="cbcc", group=group, mix=mix)


@method("cbcc-select", family="label skew")
def cbcc_select(train: Train, *, per_round: Count = 6, group: ByLabelMix = inline(by_label_mix)) -> Method:
    """Only clients of the largest cluster by label shares, the "IID cluster", participate; their plain mean (eq. 7)."""
    return replace(
        cbcc(train, group=group),
        name="cbcc-select",
        select=LargestGroup(per_round=per_round),
        mix=Average(weighting="equal"),
    )


def with_validation(train: Train) -> Train:
    """The same training with some data kept for validation, when it has none yet."""
    return train if train.holdout else replace(train, holdout=HOLDOUT)


SHARES: Key[dict[int, NDArray[np.float64]]] = Key("label mix")
IID = 0  # the number of the largest cluster, which CAFA calls the IID cluster (eq. 7)


@dataclass(frozen=True, kw_only=True)
class ByLabelMix:
    """Groups by K-means on label shares v_i = n_ic / N_i (eq. 1), k by silhouette unless `clusters` says it.

    A client is asked for its shares once. Clusters are made anew whenever a new client has told its shares, and stay
    as they are otherwise. They are numbered by size: group 0 is the IID cluster. A client that never answered has no
    group.
    """

    ask: LabelSummary
    clusters: int | None = None

    gives: ClassVar[Facts] = (GROUPS,)

    @property
    def shows(self) -> Shows:
        return by_answers(self.ask)

    def __call__(self, now: Round) -> dict[int, int]:
        heard = ask_once(now, SHARES, answers(now, self.ask, lambda reply: reply.stats.get("shares")))
        if not heard.news:
            return now.groups
        told = heard.known
        ids = sorted(told)
        vectors = np.stack([told[i] for i in ids])
        found = cluster(vectors, now.stream("clusters"), clusters=self.clusters)
        groups = dict(zip(ids, found.labels.tolist(), strict=True))
        self._note(now, told, groups, found)
        return groups

    def _note(self, now: Round, told: Mapping[int, Any], groups: Mapping[int, int], found: Clusters) -> None:
        curve = (found.k, found.score) if found.k else None
        note_groups(now, told, groups, curve=curve, shares=told)
        sizes = np.bincount(found.labels)
        now.notes["clusters"] = {
            "cluster": list(range(len(sizes))),
            "clients": sizes.tolist(),
            "weight of a client": (sizes / sizes.sum()).tolist(),
            "called IID": ["yes" if c == IID else "no" for c in range(len(sizes))],
        }
        now.notes["privacy"] = {
            "text": f"The server sees the label shares of every client. {self.ask.privacy.note()}"
        }


@part("select", "largest-group", needs=(KNOWN_GROUPS,), shows=NOTHING)
class LargestGroup(PerRound):
    """`per_round` reachable clients of the largest group, which CAFA calls the IID cluster.

    Of equally large groups, that of the lowest number. When none of its clients can be reached, of the next largest.
    """

    def __call__(self, now: Round) -> list[int]:
        sizes = Counter(now.groups.values())
        reachable = {now.groups[i] for i in now.here if i in now.groups}
        if not reachable:
            members = now.here
        else:
            best = min(reachable, key=lambda group: (-sizes[group], group))
            members = [i for i in now.here if now.groups.get(i) == best]
        return drawn_clients(members, self.per_round, now.stream("select"))
