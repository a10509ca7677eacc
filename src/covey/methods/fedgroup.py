"""FedGroup: efficient federated learning via decomposed similarity-based clustering (Duan et al., 2021)."""

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.arrays import Array
from covey.core import ANY_GROUPS, GROUPS, Key, Method, Round, Shows, Task, method, part
from covey.methods.grouped import fedavg_per_group
from covey.parts.ask_once import ask_once, grouped_once
from covey.parts.group.reports import k_groups
from covey.parts.mix.gram import products
from covey.parts.steps.train import Train
from covey.settings import Count

DIRECTIONS: Key[Tensor] = Key("fedgroup.directions")  # [m, trainable]: along which updates are compared
COSINES: Key[dict[int, NDArray[Any]]] = Key("fedgroup.cosines")


def decomposed(gram: Array, m: int) -> Array:
    """How the first m right singular vectors of the updates (rows) are made of them: [m, updates]."""
    values, vectors = np.linalg.eigh(gram)
    kept = np.argsort(-values)[:m]
    return np.asarray((vectors[:, kept] / np.sqrt(np.maximum(values[kept], 1e-24))).T)


@part("group", "updates", gives=(GROUPS,))
class ByDecomposedCosine:
    """Groups by the directions of the clients' first updates (FedGroup's EDC measure).

    An unseen client trains the same first model and joins the nearest mean.

    Args:
        groups: how many.
    """

    train: Train
    groups: Count = 3

    shows: ClassVar[Shows] = Shows(
        what="single updates of every client before the first round", instead=ANY_GROUPS
    )

    def __call__(self, now: Round) -> dict[int, int]:
        heard = ask_once(now, COSINES, lambda ids: self.cosines(now, ids))
        return grouped_once(
            now,
            heard,
            first=lambda told: self.found(now, told),
            place=lambda heard: {i: self.nearest(now, heard.known, at) for i, at in heard.news.items()},
        )

    def cosines(self, now: Round, ids: list[int]) -> dict[int, NDArray[Any]]:
        start, trainable = now.fleet.start(), now.fleet.layout.trainable
        replies = now.fleet.ask(self.train, dict.fromkeys(ids, Task(models=start[None], slots=(0,))))
        updates = [(r.vector - start)[:trainable] for r in replies if r.vector is not None]
        if not updates:
            return {}
        if DIRECTIONS.name not in now.memory:
            made = torch.from_numpy(decomposed(products(updates), self.groups))
            DIRECTIONS.keep(now.memory, (made @ torch.stack(updates).double()).float())
        ways = DIRECTIONS.of(now.memory)
        found = [
            torch.nn.functional.cosine_similarity(update[None], ways).double().numpy() for update in updates
        ]
        return {reply.id: cosine for reply, cosine in zip(replies, found, strict=True)}

    def found(self, now: Round, told: dict[int, NDArray[Any]]) -> dict[int, int]:
        table = np.stack([told[i] for i in sorted(told)])
        labels = k_groups(table, self.groups, int(now.stream("k-means").integers(2**31)))
        return dict(zip(sorted(told), labels.tolist(), strict=True))

    def nearest(self, now: Round, told: dict[int, NDArray[Any]], at: NDArray[Any]) -> int:
        kinds = sorted(set(now.groups.values()))
        means = [
            np.mean([told[i] for i, g in now.groups.items() if g == kind and i in told], axis=0)
            for kind in kinds
        ]
        return kinds[int(np.argmin([np.linalg.norm(mean - at) for mean in means]))]


@method("fedgroup", family="clusters", paper="https://arxiv.org/abs/2010.06870")
def fedgroup(train: Train, *, per_round: int = 10, clusters: Count = 3) -> Method:
    """Clients whose first updates point the same way train one model together.

    Every client trains the first model once; K-means on the cosines of the updates with the first `clusters` right
    singular vectors of all updates makes the groups (Duan et al., 2021, static FedGroup with inter-group rate 0).

    Args:
        clusters: how many groups.
    """
    return fedavg_per_group(
        "fedgroup", train, ByDecomposedCosine(train=train, groups=clusters), per_round=per_round
    )
