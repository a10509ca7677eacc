"""FedDisco: federated learning with discrepancy-aware collaboration (Ye et al., 2023)."""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.core import Client, Key, Known, Method, Mixing, Reply, Round, Shows, Step, Task, method, part, step
from covey.core.reply_schema import ROUNDING, Stat
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.ask_once import answers, ask_once
from covey.parts.mix.average import weighted_rows, weights
from covey.parts.steps.train import Train
from covey.settings import Count, NotNegative, inline

Discrepancy = Literal["kl", "l2", "l1", "cosine"]

DISCREPANCIES: Key[dict[int, float]] = Key("feddisco")


def discrepancy(counts: NDArray[np.integer], measure: Discrepancy) -> float:
    """How far the label shares are from equal ones: KL divergence, L2 or L1 distance, or 1 - cosine."""
    share = counts / counts.sum()
    even = np.full(len(share), 1 / len(share))
    if measure == "kl":
        present = share > 0
        return float((share[present] * np.log(share[present] / even[present])).sum())
    if measure == "cosine":
        return float(1 - share @ even / np.linalg.norm(share) / np.linalg.norm(even))
    return float(np.linalg.norm(share - even, 2 if measure == "l2" else 1))


def disco_weights(samples: Array, distance: Array, a: float, b: float) -> Array:
    """p_k ~ max(0, n_k / n - a d_k + b) with the d_k scaled to sum 1; n_k / n where all of them are 0."""
    share = samples / samples.sum()
    scaled = distance / distance.sum() if distance.sum() > 0 else distance
    wanted = np.maximum(share - a * scaled + b, 0)
    return np.asarray(wanted / wanted.sum() if wanted.sum() > 0 else share)


@step(kind="query.discrepancy")
class TellDiscrepancy(Step):
    """How far the client's label shares are from equal ones: one number."""

    measure: Discrepancy

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        classes = len(client.train.dataset.classes)
        if not classes:
            raise UserError("method feddisco compares label shares, but the data set has no classes")
        counts = np.bincount(client.train.labels().astype(np.int64), minlength=classes)
        return Reply(id=client.id, stats={"discrepancy": discrepancy(counts, self.measure)})

    def expects(self, known: Known) -> dict[str, Stat]:
        """All samples of one class is the farthest from equal shares: KL ln C, L1 below 2, the others below 1."""
        return {"discrepancy": Stat(low=-ROUNDING, high=max(2.0, math.log(known.classes)))}


@part("mix", "discrepancy", shows=Shows(what="every client's exact label mix", instead="use fedavg"))
class DiscoAverage:
    """FedDisco's average, in which clients with evenly spread labels count more.

    A client that does not tell its discrepancy counts as average in that.

    Args:
        measure: of the discrepancy between label shares: kl, l2, l1 or cosine.
        a: how much the discrepancy counts.
        b: what is added to every weight.
    """

    measure: Discrepancy = "kl"
    a: NotNegative = 0.5
    b: float = 0.1

    def __call__(self, now: Round) -> Mixing:
        step = TellDiscrepancy(measure=self.measure)
        ask = answers(now, step, lambda reply: float(reply.stats["discrepancy"]))
        known = ask_once(now, DISCREPANCIES, ask, [reply.id for reply in now.replies]).known
        usual = float(np.mean(list(known.values()))) if known else 0.0
        distance = np.array([known.get(reply.id, usual) for reply in now.replies])
        values = disco_weights(weights(now.replies, "samples"), distance, self.a, self.b)
        return Mixing(factors=[weighted_rows(now, values)])


@method("feddisco", family="aggregation", paper="https://arxiv.org/abs/2305.19229")
def feddisco(train: Train, *, per_round: Count = 10, mix: DiscoAverage = inline(DiscoAverage)) -> Method:
    """FedAvg in which clients whose labels are spread more evenly count more.

    p_k ~ max(0, n_k / n - a d_k + b), d_k the discrepancy between the client's label shares and equal ones, scaled to
    sum 1 over the round's clients (Ye et al., 2023). Clients tell d_k once, and nothing else about their labels.
    """
    return replace(fedavg(train, per_round=per_round), name="feddisco", mix=mix)
