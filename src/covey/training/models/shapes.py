"""What a network needs of its input: a picture that is large enough, and its size after some layers."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from covey.errors import UserError


def picture(name: str, input_shape: tuple[int, ...], smallest: int, multiple: int = 1) -> tuple[int, int]:
    """(channels, height) of a picture that the model can take; else a `UserError` that says what it needs."""
    by = " x ".join(map(str, input_shape))
    divisible = f" with sides divisible by {multiple}" if multiple > 1 else ""
    size = f"at least {smallest} x {smallest}{divisible}"
    need = f"model {name!r} needs pictures (channels x height x width) of {size}"
    if len(input_shape) != 3:
        raise UserError(f"{need}; input shape {by} has {len(input_shape)} dimensions, not 3")
    channels, height, width = input_shape
    if min(height, width) < smallest or height % multiple or width % multiple:
        raise UserError(f"{need}; input shape is {by}")
    return channels, height


def linears(widths: Sequence[int], between: type[nn.Module] = nn.ReLU) -> list[nn.Module]:
    """Linear layers of these widths with `between` between them, none after the last."""
    layers: list[nn.Module] = []
    for inside, outside in pairwise(widths):
        layers += [nn.Linear(inside, outside), between()]
    return layers[:-1]


def flat_size(features: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Values a sample has after `features`, found with one empty forward pass (no memory, no statistics)."""
    shadow = features.train(False)
    with torch.no_grad():
        size = shadow(torch.zeros(1, *input_shape)).numel()
    features.train(True)
    return int(size)
