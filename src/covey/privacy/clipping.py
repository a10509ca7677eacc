"""Clipped updates, and a clip length that follows a quantile of their lengths without seeing any of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from covey.parts.steps.gaussian_noise import length
from covey.settings.ranges import LONGEST, SHORTEST

RATE = 0.2  # eta of Andrew et al.: how fast the clip length follows
SHARE = 20.0  # the noise on the count of short updates is a 20th of the clients that are expected


def clipped_sum(updates: Sequence[Tensor], clip: float, columns: int) -> tuple[Tensor, int]:
    """sum of u_k min(1, clip / ||u_k||) in float64, and how many were short enough to count in full."""
    total, short = torch.zeros(columns, dtype=torch.float64), 0
    for update in updates:
        found = length(update)
        short += found <= clip
        total.add_(update.double(), alpha=1.0 if found <= clip else clip / found)
    return total, short


@dataclass(frozen=True, kw_only=True)
class Split:
    """The noise of one round, shared between the updates and the count of short ones (Andrew et al., 2021, Thm. 1).

    z = (z_u^-2 + (2 s)^-2)^-1/2, z the noise that is accounted, z_u that on the updates, in clip lengths, and s that on
    the sum of b_k - 1/2, b_k = 1 for a short update.
    """

    updates: float
    count: float

    @classmethod
    def of(cls, noise: float, expected: float) -> Self:
        """A count that is as good as it can be without making the updates' noise more than 4 % larger."""
        count = max(expected / SHARE, 2 * noise)
        return cls(updates=(noise**-2 - (2 * count) ** -2) ** -0.5, count=count)


def next_clip(clip: float, share: float, quantile: float) -> float:
    """C <- C exp(-eta (b - gamma)), b the noisy share of short updates, gamma the quantile."""
    found = clip * math.exp(-RATE * (min(1.0, max(0.0, share)) - quantile))
    return min(max(found, SHORTEST), LONGEST)
