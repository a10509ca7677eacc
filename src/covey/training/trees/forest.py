"""A row of the model `trees` as arrays: where samples fall, and how a level is grown."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covey.arrays import Array, Singles
from covey.errors import UserError
from covey.training.rows import Layout
from covey.training.trees.splits import Growth, Splits, best_splits

# Sums are told in units of 1024 samples: they are then of the size of other updates, and dividing is exact.
UNIT = 1024.0
Stage = Literal["base", "level", "choose", "own"]


class Grove:
    """The arrays of one row; what is written into them is written into the row.

    `grown` counts the levels so far: -1 before the base margin is known, then `depth` for every tree.
    """

    def __init__(self, layout: Layout, row: Tensor) -> None:
        if "sums" not in layout.names:
            raise UserError('trees need model.name = "trees"')
        parts = {name: tensor.numpy() for name, tensor in layout.tensors(row).items()}
        self.value: Singles = parts["value"]
        self.feature: Singles = parts["feature"]
        self.threshold: Singles = parts["threshold"]
        self.base: Singles = parts["base"]
        self.cuts: Singles = parts["cuts"]
        self.sums: Singles = parts["sums"]
        self._grown: Singles = parts["grown"]
        self._own: Singles = parts["own"]
        self.trees, self.heads, leaves = self.value.shape
        self.depth = leaves.bit_length() - 1
        self.features, self.bins = self.cuts.shape[0], self.cuts.shape[1] + 1

    @property
    def grown(self) -> int:
        return round(float(self._grown[0]))

    @grown.setter
    def grown(self, levels: int) -> None:
        self._grown[0] = levels

    @property
    def own(self) -> int:
        """How many trees of its own every client adds."""
        return round(float(self._own[0]))

    @own.setter
    def own(self, trees: int) -> None:
        self._own[0] = trees

    def stage(self, own: int) -> Stage:
        """What comes next, where the last `own` trees are the clients'."""
        common = self.depth * (self.trees - own)
        if self.grown < 0:
            return "base"
        if self.grown < common:
            return "level"
        return "choose" if own and self.grown == common else "own"

    def shape(self, stage: Stage, own: int) -> tuple[int, ...]:
        """Of what is added up in that stage."""
        if stage == "base":
            return (self.heads, 2)
        if stage == "level":
            return (self.heads, 2 ** (self.grown % self.depth), self.features, self.bins, 2)
        return (own + 1,) if stage == "choose" else (0,)

    # ------------------------------------------------------------------------------------------ samples

    def codes(self, x: Singles) -> NDArray[np.uint8]:
        """The bin of every sample and feature: how many of the feature's cuts are not above it."""
        found = np.empty(x.shape, np.uint8)
        for feature, cuts in enumerate(self.cuts):
            found[:, feature] = np.searchsorted(cuts, x[:, feature], side="right")
        return found

    def nodes(self, x: Singles, tree: int, levels: int) -> NDArray[np.int64]:
        """The place of every sample and head among the nodes of a level of the tree."""
        found = np.zeros((len(x), self.heads), np.int64)
        every = np.arange(len(x))
        for head in range(self.heads):
            feature, threshold = self.feature[tree, head].astype(np.int64), self.threshold[tree, head]
            place = found[:, head]
            for level in range(levels):
                node = place + (2**level - 1)
                asked = feature[node]
                right = (asked >= 0) & (x[every, np.maximum(asked, 0)] >= threshold[node])
                place = 2 * place + right
            found[:, head] = place
        return found

    def added(self, margin: Singles, x: Singles, tree: int) -> Singles:
        """The margins with what the tree says."""
        leaf = self.nodes(x, tree, self.depth)
        values = np.stack([self.value[tree, h][leaf[:, h]] for h in range(self.heads)], axis=1)
        found: Singles = (margin + values).astype(np.float32)
        return found

    # ------------------------------------------------------------------------------------------ growing

    def set_base(self, total: Array) -> None:
        """One Newton step from a margin of 0 for everybody: -G / H."""
        weight = np.maximum(total[:, 1], 1e-12)
        self.base[:] = np.where(total[:, 1] > 0, -total[:, 0] / weight, 0.0)
        self.grown = 0

    def grow(self, tree: int, level: int, total: Array, growth: Growth) -> Splits:
        """The splits of one level by the histograms of all samples, and the values of the nodes below it."""
        found = best_splits(total, growth)
        below = self.depth - level - 1  # a node of the next level has its value at its leftmost leaf
        if level == 0:
            self.value[tree, :, 0] = growth.value(found.whole[:, 0])
        for head, node in np.argwhere(found.split & self._alive(tree, level)):
            place = 2**level - 1 + node
            feature = found.feature[head, node]
            self.feature[tree, head, place] = feature
            self.threshold[tree, head, place] = self.cuts[feature, found.bin[head, node]]
            self.value[tree, head, (2 * node) << below] = growth.value(found.left[head, node])
            self.value[tree, head, (2 * node + 1) << below] = growth.value(found.right[head, node])
        return found

    def _alive(self, tree: int, level: int) -> NDArray[np.bool_]:
        """The nodes of a level whose parent was split."""
        if level == 0:
            return np.ones((self.heads, 1), bool)
        parents = self.feature[tree, :, 2 ** (level - 1) - 1 : 2**level - 1] >= 0
        return np.repeat(parents, 2, axis=1)
