"""FeSEM: multi-center federated learning (Long et al., 2023)."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.core import ANY_GROUPS, KNOWN_GROUPS, ONE_MODEL, Method, Mixing, Round, Shows, method, part
from covey.methods.baselines import fedavg
from covey.methods.cfl import to_known_group
from covey.parts.group.reports import k_groups
from covey.parts.mix.average import weights
from covey.parts.mix.gram import products
from covey.parts.mix.regroup import regrouped
from covey.parts.steps.train import Train
from covey.settings import Count, inline


def coordinates(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points with the same inner products as the rows behind the table: K-means on them is K-means on the rows."""
    values, vectors = np.linalg.eigh(gram)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0)))


@part("mix", "nearest-centre", needs=(ONE_MODEL,), gives=(KNOWN_GROUPS,))
class NearestCentre:
    """Every client belongs to the model that its own is nearest to, and each model is its members' mean (FeSEM).

    Members count by their samples; the first centres are found by K-means on the models of the first round.

    Args:
        k: how many models.
    """

    k: Count = 4

    shows: ClassVar[Shows] = Shows(
        what="single updates, which find their nearest centre", instead=ANY_GROUPS, in_updates=True
    )

    def __call__(self, now: Round) -> Mixing:
        trainable = now.fleet.layout.trainable
        rows = [reply.vector[:trainable] for reply in now.replies if reply.vector is not None]
        if len(now.models) == 1:
            points = coordinates(products([row - now.models[0, :trainable] for row in rows]))
            labels = k_groups(points, self.k, int(now.stream("k-means").integers(2**31)))
        else:
            centres = now.models[:, :trainable]
            labels = np.array([int((centres - row).double().square().sum(1).argmin()) for row in rows])
        now.groups = now.groups | {r.id: int(g) for r, g in zip(now.replies, labels, strict=True)}
        return regrouped(now, max(len(now.models), int(labels.max()) + 1), weights(now.replies, "samples"))


@method("fesem", family="clusters", paper="https://arxiv.org/abs/2005.01026")
def fesem(train: Train, *, per_round: Count = 10, mix: NearestCentre = inline(NearestCentre)) -> Method:
    """`k` models as the centres of the clients' models: each client belongs to the centre that its own is nearest to.

    r_i = argmin over k of ||w_i - c_k||, c_k = mean of its members' models (Long et al., 2023, FeSEM). Who has no group
    yet works on the model that fits its data best.
    """
    return replace(fedavg(train, per_round=per_round), name="fesem", send=to_known_group, mix=mix)
