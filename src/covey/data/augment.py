"""Training pictures changed anew each time they are shown: random crops and mirrors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from covey.data.types import Scale

# "crop-flip": padded by 4 black pixels, cropped back to its size at a random place, mirrored every other time.
Augment: TypeAlias = Literal["none", "crop-flip"]
PAD = 4


def cropped_and_flipped(x: Tensor, rng: np.random.Generator, scale: Scale | None) -> Tensor:
    """Pictures (N, C, H, W), each padded with black, cropped at a random place, and mirrored with probability 1/2.

    `scale` is what black (0) has become when the pictures were scaled.
    """
    count, channels, height, width = x.shape
    black = torch.zeros(channels) if scale is None else -torch.tensor(scale.mean) / torch.tensor(scale.std)
    padded = black.view(1, -1, 1, 1).repeat(count, 1, height + 2 * PAD, width + 2 * PAD)
    padded[:, :, PAD : PAD + height, PAD : PAD + width] = x
    top, left = (torch.from_numpy(rng.integers(2 * PAD + 1, size=count)) for _ in range(2))
    columns = left[:, None] + torch.arange(width)
    mirrored = torch.from_numpy(rng.random(count) < 0.5)
    columns[mirrored] = columns[mirrored].flip(1)
    rows = top[:, None] + torch.arange(height)
    picture = torch.arange(count)[:, None, None]
    return padded[picture, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def as_shown(
    x: Tensor, y: Tensor, batches: Sequence[np.ndarray], rng: np.random.Generator, scale: Scale | None
) -> tuple[Tensor, Tensor, list[np.ndarray]]:
    """The samples in the order in which the batches show them, cropped and flipped anew each time."""
    order = np.concatenate([np.zeros(0, dtype=np.int64), *batches])
    ends = np.cumsum([len(batch) for batch in batches])
    shown = torch.from_numpy(order)
    return cropped_and_flipped(x[shown], rng, scale), y[shown], np.split(np.arange(len(order)), ends[:-1])
