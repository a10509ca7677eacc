"""FedPAC: personalized federated learning with feature alignment and classifier collaboration (Xu et al., 2023)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array

from covey.arrays import Array
from covey.core import (
    MODEL_PER_CLIENT,
    Client,
    Known,
    Method,
    Mixing,
    Reply,
    Round,
    Stat,
    Task,
    method,
    part,
    step,
)
from covey.data.types import Dataset
from covey.methods.fedmgda import shortest
from covey.methods.fedproto import KeepPrototypes
from covey.parts.banks import one_per_client, to_owner
from covey.parts.mix.average import weights
from covey.parts.selection.plain import Uniform
from covey.parts.steps.evaluate import FORWARD_SHARE
from covey.parts.steps.home import at_home
from covey.parts.steps.latents import representations
from covey.parts.steps.prototypes import (
    SHOWS_MEANS,
    common_prototypes,
    expected,
    no_classes,
    prototypes,
    told,
    towards,
)
from covey.parts.steps.stepwise import LocalBatches, PlainTraining
from covey.parts.steps.train import Train, best_row
from covey.settings import Count, NotNegative, inline

HEAD = 2  # tensors of the classifier: weight and bias


@part("send", "own-model-and-prototypes", shows=SHOWS_MEANS, needs=(MODEL_PER_CLIENT,))
def to_each_its_own(now: Round, ids: Sequence[int]) -> dict[int, Task]:
    """Everybody is sent the common extractor with its own classifier, and the common prototypes."""
    args = common_prototypes(now)
    return {i: replace(task, args=args, held=(), keep=False) for i, task in to_owner(now, ids).items()}


@step("aligned", shows=SHOWS_MEANS, passes=1 + 3 * FORWARD_SHARE)
class TrainAligned(PlainTraining):
    """First the classifier alone, one epoch; then the extractor alone, whose features are drawn to the prototypes.

    Args:
        pull: weight of the distance to the prototypes (the paper's lambda).
    """

    pull: NotNegative = 1.0

    of: ClassVar[str] = "fedpac"

    def __call__(self, client: Client, task: Task) -> Reply:
        slot, row = best_row(client, task)
        bench, head = client.bench.on_torch(), at_home(client.bench.layout, HEAD, norms=False)
        samples = self.train.training_part(client)
        classes, common = len(samples.dataset.classes), task.args.get("prototypes")
        x, y = samples.tensors()
        before = prototypes(bench, row, x, y, classes)
        squares = float(representations(bench, row, x).double().square().sum(1).mean())
        loss = towards(bench, None if common is None else torch.as_tensor(common), self.pull)
        for free, train, aligned in (
            (head, replace(self.train, epochs=1, batches=None), None),
            (~head, self.train, loss),
        ):
            batches = LocalBatches.of(train, client)
            for batch in batches.order:
                moved = batches.step(row, batch, loss=None if aligned is None else aligned(x))
                row = torch.where(free, moved, row)
        reply = batches.reply(client, row, slot)
        after = prototypes(bench, row, x, y, classes)
        means, variance = statistics(before.double().numpy(), squares)
        stats = {**told(after, reply), "means": means.astype(np.float32), "variance": variance}
        return replace(reply, stats=stats)

    def expects(self, known: Known) -> dict[str, Stat]:
        means = Stat(shape=(known.classes, None), direction=True)
        more = {"means": means, "variance": Stat(low=-1e-6, direction=True)}
        return {**super().expects(known), **expected(known), **more}

    def unfit(self, dataset: Dataset) -> str:
        return no_classes(dataset)


def statistics(table: Array, squares: float) -> tuple[Array, float]:
    """h with rows p_c m_c, and the variance term v = (E ||z||^2 - sum of p_c^2 ||m_c||^2) / n.

    p_c is the share of class c among the client's n samples, m_c the mean of its features z.
    """
    samples = table[:, 0].sum()
    means = table[:, :1] / samples * table[:, 1:]
    return means, float((squares - (means**2).sum()) / samples)


def combination(own: int, means: Sequence[Array], variances: Array) -> Array:
    """The weights of everybody's classifier in client `own`'s: argmin of a' P a, a >= 0, sum of a = 1.

    P = diag(v) + D with D_jk = <h_own - h_j, h_own - h_k>: the error of a mixture is its variance and its bias.
    """
    apart = np.stack([(means[own] - other).ravel() for other in means])
    costs = np.diag(variances) + apart @ apart.T
    scale = max(float(np.diag(costs).max()), 1e-30)
    count = len(means)
    return shortest(costs / scale, np.full(count, 1 / count), 1.0)


@part("mix", "extractor-and-classifiers", needs=(MODEL_PER_CLIENT,), shows=SHOWS_MEANS)
class ExtractorAndClassifiers:
    """The extractors are averaged by samples; of classifiers everybody gets the combination that suits its own data."""

    def __call__(self, now: Round) -> list[Mixing]:
        rows, replies, layout = len(now.models), now.replies, now.fleet.layout
        share = weights(replies, "samples") / weights(replies, "samples").sum()
        everybody = csr_array(np.hstack([np.zeros((rows, rows)), np.tile(share, (rows, 1))]))
        means = [np.asarray(reply.stats["means"], np.float64) for reply in replies]
        variances = np.maximum([float(reply.stats["variance"]) for reply in replies], 0)
        own = np.hstack([np.eye(rows), np.zeros((rows, len(replies)))])
        for place, reply in enumerate(replies):
            own[reply.slot] = 0
            own[reply.slot, rows:] = combination(place, means, variances)
        head = torch.nonzero(at_home(layout, HEAD, norms=False)).flatten()
        first, last = int(head[0]), int(head[-1]) + 1
        mixings = [
            Mixing(factors=[everybody], columns=slice(0, first)),
            Mixing(factors=[csr_array(own)], columns=slice(first, last)),
            Mixing(factors=[everybody], columns=slice(last, layout.size)),
        ]
        return [m for m in mixings if isinstance(m.columns, slice) and m.columns.start < m.columns.stop]


@method("fedpac", family="personalised", paper="https://openreview.net/forum?id=SXZr8aDKia")
def fedpac(train: Train, *, per_round: Count = 10, local: TrainAligned = inline(TrainAligned)) -> Method:
    """A common extractor whose features are aligned over clients, and for each client the best mixture of classifiers.

    A client trains its classifier, then the extractor on F_k + pull (mean squared distance of features to the common
    prototypes of their classes). Its classifier becomes sum of a_j phi_j over the round's clients, with the weights a
    that minimise a' P a: variances on the diagonal, and how far the others' class means are from its own (Xu et al.,
    2023).
    """
    return Method(
        name="fedpac",
        select=Uniform(per_round=per_round),
        bank=one_per_client,
        send=to_each_its_own,
        serve=to_owner,
        local=local,
        mix=ExtractorAndClassifiers(),
        after=(KeepPrototypes(),),
    )
