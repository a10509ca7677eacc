"""A forest of boosted trees as a network: a fixed number of trees of fixed depth in a few flat tensors."""

from collections.abc import Callable
from math import prod
from typing import Annotated, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor, nn

from covey.settings.ranges import Count, Range
from covey.settings.registry import register

NO_SPLIT = -1.0  # in place of a feature: a sample that comes here goes left all the way
Depth = Annotated[int, Range(1, 10)]
Bins = Annotated[int, Range(2, 256)]
F = TypeVar("F", bound=Callable[..., nn.Module])


class Forest(nn.Module):
    """The sum of `trees` trees of `depth` levels for each head; two classes need one head, others one per class.

    Nodes lie in heap order, the children of node i being 2 i + 1 and 2 i + 2; a sample goes right where its `feature`
    is at least the `threshold`, and its leaf's `value` is added to the margin `base`. A node without a split sends
    everybody left, so that every tree has room for all leaves. Besides the trees a row carries what is needed to grow
    them: `cuts`, the borders of each input's bins; `sums`, where a round's histograms are added up (zero between
    rounds);
    `grown`, how far the forest is; and `own`, how many of its last trees a client grows for itself.
    """

    def __init__(self, inputs: int, outputs: int, *, trees: int, depth: int, bins: int) -> None:
        super().__init__()
        self.two_classes, self.depth = outputs == 2, depth
        heads, leaves = 1 if outputs == 2 else outputs, 2**depth
        self.value = nn.Parameter(torch.zeros(trees, heads, leaves))
        self.feature: Tensor
        self.threshold: Tensor
        self.base: Tensor
        # grown, not trained by gradients: as buffers they are in the row
        self.register_buffer("feature", torch.full((trees, heads, leaves - 1), NO_SPLIT))
        self.register_buffer("threshold", torch.zeros(trees, heads, leaves - 1))
        for name, shape in (
            ("base", (heads,)),
            ("cuts", (inputs, bins - 1)),
            ("sums", (heads * (leaves // 2) * inputs * bins * 2,)),
            ("grown", (1,)),
            ("own", (1,)),
        ):
            self.register_buffer(name, torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, of two classes 0 and the margin; or targets."""
        x = x.flatten(1)
        trees, heads, _ = self.value.shape
        zero = x.new_zeros(())  # so that a tracer sees the buffers, too
        feature, threshold = (zero + part.flatten(0, 1) for part in (self.feature, self.threshold))
        node = x.new_zeros((x.shape[0], trees * heads), dtype=torch.long)
        for _ in range(self.depth):
            asked = _of_node(feature, node)
            seen = x.gather(1, asked.clamp(min=0).long())
            right = (asked >= 0) & (seen >= _of_node(threshold, node))
            node = 2 * node + 1 + right.long()
        leaf = node - (2**self.depth - 1)
        margin = self.base + _of_node(self.value.flatten(0, 1), leaf).view(-1, trees, heads).sum(1)
        return torch.cat([torch.zeros_like(margin), margin], 1) if self.two_classes else margin


def _of_node(table: Tensor, node: Tensor) -> Tensor:
    """What the table (trees, nodes) says of each sample's node (samples, trees)."""
    return table.expand(node.shape[0], -1, -1).gather(2, node[:, :, None])[:, :, 0]


@runtime_checkable
class Grown(Protocol):
    """The maker of a model that local training cannot train: only methods that grow it can be used."""

    grown: bool


def grown_not_trained(model: F) -> F:
    """Says so of a model's maker."""
    cast(Grown, model).grown = True
    return model


@register("model", "trees")
@grown_not_trained
def trees(
    input_shape: tuple[int, ...], outputs: int, *, trees: Count = 60, depth: Depth = 3, bins: Bins = 64
) -> Forest:
    """A forest of trees that methods such as `boosting` grow.

    Args:
        trees: of each head; two classes have one head, others one per class.
        depth: levels of splits.
        bins: of each input, between which a split can be.
    """
    return Forest(prod(input_shape), outputs, trees=trees, depth=depth, bins=bins)
