"""Networks for sequences of tokens or of measurements: an LSTM, a TCN, a decoder-only transformer.

The output at a place depends on what came before it, never on what follows: padding at the end changes nothing.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from covey.errors import UserError
from covey.settings.ranges import Count, PartBelowOne, Range, Width
from covey.settings.registry import register
from covey.training.models.transformers import Block

PAD = 0  # the token behind the end of a text that is shorter than others
Vocabulary = Annotated[int, Range(0, 1_000_000)]


class TokenTable(nn.Embedding):
    """A vector per token or place, small at first, as transformers have it."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)


class Tokens(nn.Module):
    """Tokens (N, steps) as vectors (N, steps, width), with a learned vector for each place where it is told."""

    def __init__(self, vocabulary: int, width: int, places: int = 0) -> None:
        super().__init__()
        self.tokens = TokenTable(vocabulary, width)
        self.places = TokenTable(places, width) if places else None

    def forward(self, x: Tensor) -> Tensor:
        vectors: Tensor = self.tokens(x)
        return vectors if self.places is None else vectors + self.places.weight[: x.shape[1]]


class Measurements(nn.Module):
    """Series (N, channels, steps) or spectrograms (N, 1, bands, steps) as vectors (N, steps, width)."""

    def __init__(self, channels: int, width: int, places: int = 0) -> None:
        super().__init__()
        self.inside = nn.Linear(channels, width)
        self.places = TokenTable(places, width) if places else None

    def forward(self, x: Tensor) -> Tensor:
        vectors: Tensor = self.inside(x.flatten(1, -2).transpose(1, 2))
        return vectors if self.places is None else vectors + self.places.weight[: vectors.shape[1]]


class Sequence(nn.Module):
    """What goes in becomes vectors, `body` looks back along them, and `head` answers.

    For the next token it answers at every place: logits (N, tokens, steps). For classes it answers once, to the mean
    over all places that are no padding: logits (N, classes).
    """

    def __init__(self, inside: nn.Module, body: nn.Module, width: int, outputs: int, *, each: bool) -> None:
        super().__init__()
        self.inside, self.body, self.each = inside, body, each
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        seen: Tensor = self.body(self.inside(x))
        if self.each:
            logits: Tensor = self.head(seen)
            return logits.transpose(1, 2)
        if isinstance(self.inside, Measurements):
            return self.head(seen.mean(1))  # type: ignore[no-any-return]
        there = (x != PAD).to(seen.dtype)[:, :, None]
        return self.head((seen * there).sum(1) / there.sum(1).clamp(min=1))  # type: ignore[no-any-return]


def sequence(
    name: str,
    input_shape: tuple[int, ...],
    outputs: int,
    vocabulary: int,
    width: int,
    body: tuple[nn.Module, int],
    *,
    placed: bool = False,
) -> Sequence:
    """The network around a body, of which the width of what it gives is known."""
    places = input_shape[-1] if placed else 0
    inner, wide = body
    if len(input_shape) == 1:
        inside: nn.Module = Tokens(vocabulary or outputs, width, places)
        return Sequence(inside, inner, wide, outputs, each=not vocabulary)
    if len(input_shape) == 2 or (len(input_shape) == 3 and input_shape[0] == 1):
        return Sequence(Measurements(input_shape[-2], width, places), inner, wide, outputs, each=False)
    raise UserError(
        f"model.name is {name!r}, which takes tokens (steps), series (channels, steps) or spectrograms (1, bands, "
        f"steps), not samples of shape {input_shape}"
    )


class LongShort(nn.Module):
    """An LSTM (Hochreiter and Schmidhuber, 1997) that gives its hidden state at every place, and nothing else."""

    def __init__(self, width: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.cells = nn.LSTM(width, hidden, depth, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        known: Tensor = self.cells(x)[0]
        return known


@register("model", "lstm")
def lstm(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    vocabulary: Vocabulary = 0,
    width: Width = 8,
    hidden: Width = 100,
    depth: Count = 2,
) -> Sequence:
    """An LSTM; LEAF's for Shakespeare: 8 numbers per letter, two layers of 100 (128,833 parameters for 37 tokens).

    Args:
        vocabulary: number of tokens where texts are classified; 0: inputs and outputs have the same tokens, and the
            network says at every place which token is next.
        width: numbers of a token.
        hidden: of a layer.
        depth: layers.
    """
    body = LongShort(width, hidden, depth)
    return sequence("lstm", input_shape, outputs, vocabulary, width, (body, hidden))


class Dilated(nn.Module):
    """relu(x + relu(conv(relu(conv(x))))), where a place sees itself and places `gap` and 2 `gap` before it."""

    def __init__(self, width: int, gap: int, dropout: float) -> None:
        super().__init__()
        self.before = nn.ConstantPad1d((2 * gap, 0), 0.0)
        self.first, self.second = (nn.Conv1d(width, width, 3, dilation=gap) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        inner = x
        for layer in (self.first, self.second):
            inner = self.dropout(torch.relu(layer(self.before(inner))))
        return torch.relu(x + inner)


class Convolutions(nn.Module):
    """Dilated blocks, each looking back twice as far as the one before."""

    def __init__(self, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Dilated(width, 2**level, dropout) for level in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        seen: Tensor = self.blocks(x.transpose(1, 2))
        return seen.transpose(1, 2)


@register("model", "tcn")
def tcn(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    vocabulary: Vocabulary = 0,
    width: Width = 32,
    depth: Annotated[int, Range(1, 12)] = 4,
    dropout: PartBelowOne = 0.0,
) -> Sequence:
    """A temporal convolutional network (Bai et al., 2018): a place sees the 4 (2^depth - 1) places before it, too.

    Args:
        vocabulary: tokens that go in where texts are classified; 0: what goes in is what comes out, and the network
            answers at every place which token is next.
        width: channels.
        depth: blocks of two convolutions.
        dropout: share of the values that is left out in training.
    """
    body = Convolutions(width, depth, dropout)
    return sequence("tcn", input_shape, outputs, vocabulary, width, (body, width))


@register("model", "decoder")
def decoder(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    vocabulary: Vocabulary = 0,
    width: Width = 160,
    depth: Count = 4,
    heads: Count = 4,
) -> Sequence:
    """A decoder-only transformer (GPT-2's blocks): 1,254,437 parameters for 37 tokens and texts of 32.

    Args:
        vocabulary: tokens that go in where texts are classified; 0: what goes in is what comes out, and the network
            answers at every place which token is next.
        width: of the vectors.
        depth: blocks.
        heads: of attention; they divide the width.
    """
    if width % heads:
        raise UserError(f"model.heads is {heads}; it must divide model.width, {width}")
    blocks = (Block(width, heads, causal=True) for _ in range(depth))
    body = nn.Sequential(*blocks, nn.LayerNorm(width))
    return sequence("decoder", input_shape, outputs, vocabulary, width, (body, width), placed=True)
