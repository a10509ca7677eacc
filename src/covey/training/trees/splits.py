"""What a histogram of gradients says: where to split a node, and the value of each side (Chen and Guestrin, 2016)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array, Singles
from covey.errors import UserError
from covey.settings import NotNegative, Positive, validated

LEAST_GAIN = 1e-6  # below it a split is rounding
SMALL = 1e-16  # a second derivative that is lost in rounding


@validated
class Growth:
    """How much a split must gain, and what a leaf is worth: -learning_rate G / (H + l2).

    Args:
        learning_rate: share of a leaf's best value that is added.
        l2: penalty on the squares of leaf values.
        gamma: the least gain of a split.
        min_child_weight: the least sum of second derivatives on either side of a split.
    """

    learning_rate: Positive = 0.1
    l2: NotNegative = 1.0
    gamma: NotNegative = 0.0
    min_child_weight: NotNegative = 5.0

    def score(self, sums: Array) -> Array:
        """G^2 / (H + l2), twice what the best value of a leaf with these sums takes off the loss."""
        gradient, weight = sums[..., 0], np.maximum(sums[..., 1], 0.0) + self.l2
        return np.divide(gradient**2, weight, out=np.zeros_like(gradient), where=weight > 0)

    def value(self, sums: Array) -> Array:
        """-learning_rate G / (H + l2)."""
        gradient, weight = sums[..., 0], np.maximum(sums[..., 1], 0.0) + self.l2
        best = np.divide(gradient, weight, out=np.zeros_like(gradient), where=weight > 0)
        return -self.learning_rate * best


@dataclass(frozen=True, eq=False, kw_only=True)
class Splits:
    """The best split of each head's nodes, [heads, nodes]: feature, last bin on the left, gain, sums of both sides.

    split: whether it gains enough. whole, left, right: G and H in a last direction.
    """

    feature: NDArray[np.int64]
    bin: NDArray[np.int64]
    gain: Array
    split: NDArray[np.bool_]
    whole: Array
    left: Array
    right: Array


def best_splits(sums: Array, growth: Growth) -> Splits:
    """The best split of every node by its histogram [heads, nodes, features, bins, (G, H)].

    gain = G_L^2 / (H_L + l2) + G_R^2 / (H_R + l2) - G^2 / (H + l2). Of equal ones the first feature and bin count.
    """
    upto = sums.cumsum(axis=3)
    whole = upto[:, :, :1, -1]  # of any feature: all of them add up the same samples
    left = upto[:, :, :, :-1]
    right = whole[:, :, :, None] - left
    gain = growth.score(left) + growth.score(right) - growth.score(whole)[..., None]
    enough = np.minimum(left[..., 1], right[..., 1]) >= growth.min_child_weight
    gain = np.where(enough, gain, -np.inf).reshape(*sums.shape[:2], -1)
    best = gain.argmax(axis=2)
    highest = np.take_along_axis(gain, best[..., None], 2)[..., 0]
    feature, place = np.divmod(best, sums.shape[3] - 1)
    head, node = np.ogrid[: sums.shape[0], : sums.shape[1]]
    return Splits(
        feature=feature,
        bin=place,
        gain=highest,
        split=highest > max(growth.gamma, LEAST_GAIN),
        whole=whole[:, :, 0],
        left=left[head, node, feature, place],
        right=right[head, node, feature, place],
    )


def histogram(
    codes: NDArray[np.integer],
    node: NDArray[np.int64],
    derivatives: tuple[Singles, Singles],
    shape: tuple[int, int],
) -> Array:
    """Sums of both derivatives by head, node, feature and bin: [heads, nodes, features, bins, 2].

    codes: the bin of each sample and feature. node, derivatives: of each sample and head. shape: nodes and bins.
    """
    nodes, bins = shape
    features = codes.shape[1]
    places = codes + np.arange(features) * bins
    found = np.zeros((node.shape[1], nodes * features * bins, 2))
    for head in range(node.shape[1]):
        place = (node[:, head, None] * (features * bins) + places).ravel()
        for which, derivative in enumerate(derivatives):
            weights = np.repeat(derivative[:, head].astype(np.float64), features)
            found[head, :, which] = np.bincount(place, weights, minlength=len(found[head]))
    return found.reshape(node.shape[1], nodes, features, bins, 2)


def derivatives(
    margin: Singles, y: NDArray[np.floating | np.integer], kernel: str
) -> tuple[Singles, Singles]:
    """The first and second derivatives of each sample's loss by its margins, [samples, heads], as XGBoost has them.

    Two classes: p - y and p (1 - p). More: p_k - [y = k] and 2 p_k (1 - p_k). Squares: m - y and 1.
    """
    if kernel == "mse":
        return (margin - y.reshape(len(y), -1)).astype(np.float32), np.ones_like(margin)
    if kernel != "cross-entropy":
        raise UserError("trees are boosted for classification or regression; set objective to one of them")
    if margin.shape[1] == 1:
        p = 1 / (1 + np.exp(-margin))
        return (p - y.reshape(-1, 1)).astype(np.float32), np.maximum(p * (1 - p), SMALL).astype(np.float32)
    powers = np.exp(margin - margin.max(axis=1, keepdims=True))
    p = powers / powers.sum(axis=1, keepdims=True)
    gradient = p.copy()
    gradient[np.arange(len(y)), y.astype(np.int64)] -= 1
    return gradient.astype(np.float32), np.maximum(2 * p * (1 - p), SMALL).astype(np.float32)
