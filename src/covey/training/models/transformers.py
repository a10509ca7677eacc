"""The block of transformers (Vaswani et al., 2017), and a small vision transformer (Dosovitskiy et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from covey.errors import UserError
from covey.settings.ranges import Count, Width
from covey.settings.registry import register
from covey.settings.signatures import validated_in


class Attention(nn.Module):
    """Every place looks at every other, or at those before it: softmax(Q K' / sqrt(d)) V, in several heads."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        mixed: Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return mixed


class Block(nn.Module):
    """Attention, then a perceptron at every place, each on what was normalised and added to it."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.perceptron(self.after(x))  # type: ignore[no-any-return]


class VisionTransformer(nn.Module):
    """Patches become vectors with a learned place each; the mean over them is classified."""

    def __init__(
        self, shape: tuple[int, ...], outputs: int, patch: int, width: int, depth: int, heads: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(shape[0], width, patch, stride=patch)
        self.places = nn.Parameter(torch.randn(1, (shape[1] // patch) * (shape[2] // patch), width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        logits: Tensor = self.head(self.norm(self.blocks(tokens)).mean(1))
        return logits


@register("model", "vit")
@validated_in("model")
def vit(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    patch: Count = 4,
    width: Width = 64,
    depth: Count = 4,
    heads: Count = 4,
) -> VisionTransformer:
    """A vision transformer: 204,938 parameters for grey pictures of 28 pixels and 10 classes.

    Args:
        patch: pixels of a patch's side.
        width: of the vectors.
        depth: blocks.
        heads: of attention; they divide the width.
    """
    if len(input_shape) != 3 or input_shape[1] % patch or input_shape[2] % patch:
        raise UserError(
            f"model.patch is {patch}; samples have shape {input_shape}, and allowed are pictures whose sides it divides"
        )
    if width % heads:
        raise UserError(f"model.heads is {heads}; it must divide model.width, {width}")
    return VisionTransformer(input_shape, outputs, patch, width, depth, heads)
