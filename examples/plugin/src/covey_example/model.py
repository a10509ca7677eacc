"""A small network of one's own."""

from __future__ import annotations

import math

from torch import nn


def two_layers(input_shape: tuple[int, ...], outputs: int, *, width: int = 24) -> nn.Module:
    """Two fully connected layers with a tanh between them.

    Args:
        width: units between the layers.
    """
    size = math.prod(input_shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.Tanh(), nn.Linear(width, outputs))
