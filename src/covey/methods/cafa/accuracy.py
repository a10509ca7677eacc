"""CAFA's averages: clients of large clusters, and models that do well on the others' data, count more."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from covey.arrays import Array
from covey.core import KNOWN_GROUPS, Facts, Mixing, Reply, Round, Shows, Task
from covey.parts.mix.average import weighted_rows
from covey.parts.steps.cross import CrossEvaluate
from covey.settings import PartBelowOne, UpTo100, validated


@validated
class LikenessAverage:
    """W = sum of w^K_i w^A_i W_i / sum of w^K_j w^A_j over the replies (CAFA, eq. 11).

    w^K is the share of the client's cluster (`by_cluster`, eq. 8), w^A the accuracy of the client's model on the
    validation data of all clients of the round (`by_accuracy`, eq. 9-10), each 1 when it is switched off. `holdout`
    is the share of the local data kept for validation. `balanced`: w^A is the mean over the classes of the share of
    hits, to the `power`; then clients that hold one and the same class cannot judge each other perfect. `by_samples`:
    times the client's number of samples, as in FedAvg.
    """

    by_cluster: bool = True
    by_accuracy: bool = True
    holdout: PartBelowOne = 0.0
    balanced: bool = False
    power: UpTo100 = 1.0
    by_samples: bool = False

    @property
    def shows(self) -> Shows:
        if self.by_accuracy:
            return Shows(
                what="exact evaluations of each other's models",
                instead="use cbcc with epsilon at the local or example level, or embedding",
            )
        return Shows(
            what="single updates, which count by their client's cluster",
            instead="use cbcc-select with epsilon, or embedding",
            in_updates=True,
        )

    @property
    def needs(self) -> Facts:
        return (KNOWN_GROUPS,) if self.by_cluster else ()

    def __call__(self, now: Round) -> Mixing:
        ids = [reply.id for reply in now.replies]
        weights = cluster_weights(ids, now.groups) if self.by_cluster else np.ones(len(ids))
        if self.by_samples:
            weights = weights * np.array([float(reply.size) for reply in now.replies])
        if self.by_accuracy and self.balanced:
            answers = cross_evaluation(now, self.holdout, by_class=True)
            weights = weights * balanced_accuracy(answers, len(ids)) ** self.power
        elif self.by_accuracy:
            table, sizes = accuracy_table(cross_evaluation(now, self.holdout), len(ids))
            weights = weights * accuracy_weights(table, sizes)
        # Equal weights become ones, as in FedAvg, so that the result is FedAvg's to the bit.
        weights = weights / weights.max() if weights.max() > 0 else np.ones(len(ids))
        return Mixing(factors=[weighted_rows(now, weights)])


def cluster_weights(ids: Sequence[int], groups: Mapping[int, int]) -> Array:
    """w^K_i = |C(i)| / n with n the number of all known clients (eq. 8); a client without a cluster is alone in one."""
    sizes = Counter(groups.values())
    members = [sizes[groups[i]] if i in groups else 1 for i in ids]
    return np.array(members, dtype=np.float64) / max(len(groups), 1)


def cross_evaluation(now: Round, holdout: float, *, by_class: bool = False) -> list[Reply]:
    """What everybody who replied says of every reply's model on its validation data.

    Clients send their models to each other: K (K - 1) transfers between peers. A client that does not answer judges
    nobody.
    """
    rows = torch.stack([reply.vector for reply in now.replies if reply.vector is not None])
    slots = tuple(range(len(rows)))
    tasks = {
        reply.id: Task(models=rows, slots=slots, held=(place,), source="peers")
        for place, reply in enumerate(now.replies)
    }
    answers = now.fleet.ask(CrossEvaluate(holdout=holdout, models=len(rows), by_class=by_class), tasks)
    _note_cost(now)
    return answers


def accuracy_table(answers: Sequence[Reply], models: int) -> tuple[Array, Array]:
    """a_ij and S_j out of the answers; one that does not hold an accuracy between 0 and 1 a model is left out."""
    fit = [
        (np.asarray(answer.stats["accuracy"], dtype=np.float64), float(answer.size))
        for answer in answers
        if _is_accuracy(answer.stats.get("accuracy"), models)
    ]
    table = np.stack([accuracy for accuracy, _ in fit], axis=1) if fit else np.zeros((models, 0))
    return table, np.array([size for _, size in fit])


def balanced_accuracy(answers: Sequence[Reply], models: int) -> Array:
    """For each model the mean over the classes of (hits in it, over all judges) / (samples of it, over all judges).

    Classes that nobody has do not count. When no model gets anything right, or nobody answered, all score 1.
    """
    told = [(answer.stats["hits"], answer.stats["labels"]) for answer in answers]
    fit = [(hits, labels) for hits, labels in told if len(hits) == models and (hits <= labels).all()]
    if not fit:
        return np.ones(models)
    hits = np.sum([hits for hits, _ in fit], axis=0)
    labels = np.sum([labels for _, labels in fit], axis=0)
    known = labels > 0
    scores = (hits[:, known] / labels[known]).mean(axis=1) if known.any() else np.zeros(models)
    return np.asarray(scores if scores.max(initial=0.0) > 0 else np.ones(models))


def _is_accuracy(value: object, models: int) -> bool:
    if not isinstance(value, np.ndarray) or value.shape != (models,):
        return False
    return bool(((value >= 0) & (value <= 1)).all())


def accuracy_weights(accuracy: Array, sizes: Array) -> Array:
    """w^A_i = A_i / sum of A_j with A_i = sum over j of a_ij S_j / sum of S_j (eq. 9-10).

    The client's own validation data count too. When no model gets anything right, all weigh the same.
    """
    scores = (accuracy * sizes).sum(axis=1) / max(float(sizes.sum()), 1.0)
    total = scores.sum()
    return scores / total if total > 0 else np.full(len(scores), 1 / len(scores))


def _note_cost(now: Round) -> None:
    """For the report: what the cross-evaluation of the round cost beside everything else so far in it."""
    costs = now.fleet.ledger.this_round
    own = costs[CrossEvaluate.kind]
    everything = sum(cost.bytes for cost in costs.values())
    seconds = sum(cost.seconds for cost in costs.values())
    now.notes["cross-evaluation"] = {
        "round": now.number,
        "messages": own.messages,
        "bytes between peers": own.bytes_peer,
        "share of the round's bytes": own.bytes / everything if everything else 0.0,
        "share of the round's seconds": own.seconds / seconds if seconds else 0.0,
    }
    now.notes["models"] = {"text": "The clients of a round see each other's models."}
