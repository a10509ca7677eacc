"""The block of transformers (Vaswani et al., 2017), and a small vision transformer (Dosovitskiy et al., 2021)."""

import torch
from torch import Tensor, nn

from covey.errors import UserError
from covey.settings.ranges import Count, Width
from covey.settings.registry import register


class Attention(nn.Module):
    """Every place looks at every other, or at those before it: softmax(Q K' / sqrt(d)) V, in several heads.

    Keys and values `before` those of a sample, each [count, width], are seen from every place.
    """

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, before: tuple[Tensor, ...] = ()) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        mask = None
        if before:
            k, v = (
                torch.cat([own.expand(len(x), -1, -1), part], 1)
                for own, part in zip(before, (k, v), strict=True)
            )
            mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=x.device)
            mask = mask.tril(len(before[0])) if self.causal else mask
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        causal = self.causal and mask is None
        seen = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
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


class Prefixed(nn.Module):
    """An attention that sees learned keys and values before those of a sample."""

    def __init__(self, base: Attention, count: int) -> None:
        super().__init__()
        self.base = base
        self.keys, self.values = (
            nn.Parameter(torch.randn(count, base.key.out_features) * 0.02) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        given: Tensor = self.base(x, before=(self.keys, self.values))
        return given


@register("adapter", "prefix")
def prefix(model: nn.Module, *, count: Count = 8) -> None:
    """Prefix tuning (Li and Liang, 2021): learned keys and values before those of every attention; all else is frozen.

    They are trained as they are, not through a perceptron.

    Args:
        count: keys, and as many values, of each attention.
    """
    found = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, Attention)]
    if not found:
        raise UserError(
            'model.adapter.name is "prefix", which needs attention: allowed with the models decoder and vit'
        )
    model.requires_grad_(False)
    for name, layer in found:
        model.set_submodule(name, Prefixed(layer, count))
