"""Gradient boosting (Chen and Guestrin, 2016) over clients: one sum of histograms for each level of each tree."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from covey.arrays import Array
from covey.core import NOTHING, Method, Reply, Round, Shows, method, own_model, to_everybody
from covey.methods.boosting.cuts import Cuts, Forests
from covey.methods.boosting.histograms import TellHistograms
from covey.parts.banks import to_group
from covey.parts.selection.plain import Everybody, Uniform
from covey.parts.steps.train import Train
from covey.settings import Count, Natural, PartBelowOne, inline
from covey.settings.parts import GroupPart, PartOf, make_part
from covey.training.trees.forest import UNIT, Grove
from covey.training.trees.model import Bins, Depth
from covey.training.trees.splits import Growth


@dataclass(frozen=True, kw_only=True)
class Grow:
    """The server's part: it adds the clients' sums up, and grows one more level of every forest by them.

    The first `shared` trees of all groups' forests are grown by everybody's sums.
    """

    growth: Growth
    own: Natural = 0
    shared: Natural = 0

    shows: ClassVar[Shows] = NOTHING

    def __call__(self, now: Round) -> Tensor:
        rows = now.models.clone()
        groves = [Grove(now.fleet.layout, row) for row in rows]
        before = [grove.grown for grove in groves]
        for slot, grove in enumerate(groves):
            stage = grove.stage(self.own)
            together = grove.grown < grove.depth * self.shared
            alike = [other for other, grown in enumerate(before) if grown == grove.grown]
            heard = [r for r in now.replies if r.slot == slot or (together and r.slot in alike)]
            if not heard or stage == "own":
                continue
            self.next(grove, total(now, heard).reshape(-1))
        return rows

    def next(self, grove: Grove, told: Array) -> None:
        """What comes of the sum over all clients."""
        stage = grove.stage(self.own)
        shape = grove.shape(stage, self.own)
        sums = told[: int(np.prod(shape))].reshape(shape)
        if stage == "base":
            grove.set_base(sums)
            return
        if stage == "choose":
            grove.own = int(sums.argmin())
        else:
            tree, level = divmod(grove.grown, grove.depth)
            grove.grow(tree, level, sums, self.growth)
        grove.grown += 1


def total(now: Round, replies: list[Reply]) -> Array:
    """The sum over clients; a reply may stand for `size` of them, with their mean."""
    layout = now.fleet.layout
    found = np.zeros(int(np.prod(layout.tensors(now.models[0])["sums"].shape)))
    for reply in replies:
        assert reply.vector is not None
        own, start = (layout.tensors(row)["sums"].double() for row in (reply.vector, now.start_of(reply)))
        found += reply.size * (own - start).numpy()
    return UNIT * found


def forest_of(method: Mapping[str, Any]) -> dict[str, Any]:
    """The table [model] of a method's table."""
    return {
        "name": "trees",
        "trees": method["trees"] + method.get("own", 0),
        "depth": method["depth"],
        "bins": method["bins"],
    }


def rounds_of(method: Mapping[str, Any]) -> int:
    """A sum for the base margin, one for each level, one to choose own trees by and one to grow them."""
    first, last = int(method["base"] is None), 2 * (method.get("own", 0) > 0)
    return int(first + method["trees"] * method["depth"] + last)


@method("boosting", family="trees", paper="https://arxiv.org/abs/1603.02754")
@own_model(forest_of, rounds_of)
def boosting(
    train: Train,
    *,
    base: float | None = None,
    cuts: Cuts = "quantiles",
    per_round: Count | None = None,
    group: GroupPart = None,
    shared: Natural = 0,
    trees: Count = 60,
    depth: Depth = 3,
    bins: Bins = 64,
    growth: Growth = inline(Growth),
) -> Method:
    """Gradient-boosted trees, the same as on pooled data: a round is one level of one tree.

    Clients add up the first and second derivatives g and h of their samples' losses by node, input and bin. Of the
    sums over all clients the server takes, for every node, the split with the largest gain
    G_L^2 / (H_L + l2) + G_R^2 / (H_R + l2) - G^2 / (H + l2), and the values -learning_rate G / (H + l2) of its sides.
    With a `group` part every group has a forest, whose first `shared` trees are everybody's.

    Args:
        base: the margin that all predictions start from; none: found in a round of its own.
        cuts: quantiles: the bins' borders are quantiles of what all clients tell of their inputs, once; grid: they are
            evenly spaced over three standard deviations, which tells nothing.
        per_round: how many clients are in a sum; none: everybody.
        group: who is alike; none: one forest for all.
        shared: with groups: how many first trees are grown by everybody together.
        trees: of each head; two classes have one head, others one per class.
        depth: levels of splits.
        bins: of each input, between which a split can be.
    """
    groups = PartOf("group").read("group", group)
    assert not isinstance(groups, str)
    return Method(
        name="boosting",
        group=make_part("group", groups, {"train": train}) if groups else None,
        bank=Forests(cuts=cuts, base=base, per_group=groups is not None),
        select=Everybody() if per_round is None else Uniform(per_round=per_round),
        send=to_everybody if groups is None else to_group,
        local=TellHistograms(growth=growth),
        combine=Grow(growth=growth, shared=shared),
    )


@method("boosting-personal", family="trees")
@own_model(forest_of, rounds_of)
def boosting_personal(
    train: Train,
    *,
    own: Count = 20,
    holdout: PartBelowOne = 0.1,
    common: Method = inline(boosting),
) -> Method:
    """Boosting whose last trees are each client's own, grown at home on what the common ones leave over.

    How many of them help is found for all clients together: it is the number with the lowest summed loss on samples
    that no common tree was grown on. The client's own trees are then grown on all of its samples, and stay with it.

    Args:
        own: the most trees of each client's own.
        holdout: share of every client's samples that the common trees do not see.
    """
    grow = common.combine
    assert isinstance(grow, Grow)
    return replace(
        common,
        name="boosting-personal",
        local=TellHistograms(growth=grow.growth, own=own, holdout=holdout),
        combine=replace(grow, own=own),
    )
