"""Bagging (Breiman, 1996), the baseline of boosting: every client grows a tree on its own samples for one forest."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.core import Client, Known, Method, Reply, Round, Shows, Task, method, own_model, step
from covey.errors import RunError
from covey.methods.boosting import Grow, forest_of
from covey.methods.boosting.cuts import Forests
from covey.methods.boosting.histograms import ROUNDED, SampleRows, TellHistograms, mean
from covey.parts.selection.plain import Uniform
from covey.parts.steps.train import Train
from covey.settings import Count, inline
from covey.training.rows import Layout
from covey.training.trees.forest import Grove
from covey.training.trees.model import NO_SPLIT, Bins, Depth
from covey.training.trees.splits import Growth

SINGLE_TREES = Shows(what="a tree of every client's own", instead="use boosting, whose rounds make sums")


@step(kind="train.tree", shows=SINGLE_TREES)
class TellTree(TellHistograms):
    """A tree that the client grows on what the forest leaves over of its own samples; only the tree travels."""

    def __call__(self, client: Client, task: Task) -> Reply:
        grove = Grove(client.bench.layout, task.models[0].clone())
        if grove.grown < 0:
            return super().__call__(client, task)
        tree = grove.grown // grove.depth
        rows = SampleRows.of(client, client.train, grove)
        if tree < grove.trees:
            rows.add_tree(tree, self.growth)
        told = [part[tree : tree + 1].ravel() for part in (grove.feature, grove.threshold, grove.value)]
        return Reply(
            id=client.id,
            vector=torch.from_numpy(np.concatenate(told)),
            slot=task.slots[0],
            size=len(client.train),
            stats={"loss": mean(rows.losses())},
        )

    def unpacked(self, reply: Reply, task: Task, layout: Layout) -> Reply:
        """The row that was sent, with the client's tree as its next one."""
        row = task.models[task.slots.index(reply.slot)].clone()
        grove = Grove(layout, row)
        if grove.grown < 0 or reply.vector is None:
            return super().unpacked(reply, task, layout)
        tree = grove.grown // grove.depth
        places = [part[tree : tree + 1] for part in (grove.feature, grove.threshold, grove.value)]
        if reply.vector.shape != (sum(place.size for place in places),):
            raise RunError(f"its tree has {reply.vector.numel()} numbers")
        ends = np.cumsum([place.size for place in places])[:-1]
        for place, told in zip(places, np.split(reply.vector.numpy(), ends), strict=True):
            place[...] = told.reshape(place.shape)
        return replace(reply, vector=row)

    def misfit(self, reply: Reply, layout: Layout, known: Known) -> str:
        """Why a tree is refused: it asks for inputs that do not exist, or says more than all its samples could."""
        assert reply.vector is not None
        grove = Grove(layout, reply.vector)
        if grove.grown < 0:
            return super().misfit(reply, layout, known)
        tree = grove.grown // grove.depth
        if tree >= grove.trees:
            return ""
        asked, value = grove.feature[tree], float(np.abs(grove.value[tree]).max())
        if (asked != np.round(asked)).any() or asked.min() < NO_SPLIT or asked.max() >= grove.features:
            return f"its tree asks for input {asked.max():g}, and there are {grove.features}"
        most = ROUNDED * self.growth.learning_rate * known.train
        if known.classes and value * self.growth.l2 > most:  # G / (H + l2), where no |g| is above 1
            return f"a leaf of its tree has {value:.4g}, which is more than its {known.train} samples can make it"
        return ""


@dataclass(frozen=True, kw_only=True)
class Append:
    """The forest with the clients' trees, each counted by its share of the samples; those without room are left out."""

    growth: Growth

    shows: ClassVar[Shows] = SINGLE_TREES

    def __call__(self, now: Round) -> Tensor:
        layout, rows = now.fleet.layout, now.models.clone()
        grove = Grove(layout, rows[0])
        if grove.grown < 0:
            return Grow(growth=self.growth)(now)
        first = grove.grown // grove.depth
        replies = now.replies[: grove.trees - first]
        samples = sum(reply.size for reply in replies)
        for tree, reply in enumerate(replies, start=first):
            assert reply.vector is not None
            told = Grove(layout, reply.vector)
            grove.feature[tree], grove.threshold[tree] = told.feature[first], told.threshold[first]
            grove.value[tree] = told.value[first] * (reply.size / max(1, samples))
        grove.grown += grove.depth * len(replies)
        return rows


def rounds_of(method: Mapping[str, Any]) -> int:
    """One for the base margin, then as many as fill the forest."""
    return 1 + max(1, int(method["trees"]) // int(method["per_round"]))


@method("bagging", family="trees")
@own_model(forest_of, rounds_of)
def bagging(
    train: Train,
    *,
    per_round: Count = 10,
    trees: Count = 60,
    depth: Depth = 3,
    bins: Bins = 64,
    growth: Growth = inline(Growth),
) -> Method:
    """Trees that clients grow alone: in each round some add one each to the forest, by their shares of the samples.

    The tree of client k is grown on the derivatives of its own samples under the forest so far, and its leaf values
    count n_k / sum of n. It takes one round per tree where boosting takes one per level; the server sees single trees.

    Args:
        per_round: how many clients add a tree in a round.
        trees: of each head; two classes have one head, others one per class.
        depth: levels of splits.
        bins: of each input, between which a split can be.
    """
    return Method(
        name="bagging",
        bank=Forests(),
        select=Uniform(per_round=per_round),
        local=TellTree(growth=growth),
        combine=Append(growth=growth),
    )
