"""What is told of a sample: its values and edges, and for pictures the directions of their strokes."""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool1d, adaptive_avg_pool2d, pad

from covey.arrays import Array

BITS = 4096  # for every class and half, about
STROKE_BITS = 2048  # more of them for the directions of a picture's strokes
CELLS, DIRECTIONS = 4, 8  # strokes are told for 4 x 4 parts of a picture, in eight directions
SIDE = 16  # of the pictures that are described; larger ones are averaged down to it
USUAL_EDGE = 0.5  # of standardised pictures: the middle of what edges are told as
USUAL_STROKE = 0.35  # and of what strokes are told as
VECTOR = 32  # pixels in two of the widest vectors, which PyTorch takes at a time
AT_ONCE = 128  # pictures that are looked at together: what a core's own cache holds


@dataclass(frozen=True, kw_only=True, eq=False)
class PortraitView:
    """One way of looking at samples: values [samples, d], and how often each mean is told."""

    values: Array
    times: int


def views_of(x: Tensor, *, with_strokes: bool = True) -> tuple[PortraitView, ...]:
    """What is told of standardised samples; of pictures in two ways, as each sees what the other cannot.

    Values and edges show brightness, colours and style; strokes show what is drawn where things are as often bright on
    dark as dark on bright (house numbers), so that the values of a class cancel.
    """
    if x.dim() != 4 or min(x.shape[-2:]) < 3:
        return (told_in(BITS, [features(x)]),)
    parts = [(part, Slopes.of(part)) for part in torch.split(x, AT_ONCE)]
    plain = told_in(BITS, [described(part, slopes) for part, slopes in parts])
    if not with_strokes or min(x.shape[-2:]) < CELLS:
        return (plain,)
    return plain, told_in(STROKE_BITS, [strokes(slopes) for _, slopes in parts])


def seen_together(shape: tuple[int, ...], count: int) -> bool:
    """Whether that many samples of several clients can be looked at together, with the bits that each has alone.

    They can where pictures are whole vectors of pixels, so that none is at an end that is worked out otherwise, and
    are averaged down in windows of 1, 2 or 4 a side: dividing by their sizes is exact.
    """
    sides = shape[1:]
    exact = all(3 <= side <= SIDE or side in (2 * SIDE, 4 * SIDE) for side in sides)
    return len(sides) == 2 and exact and not math.prod(sides) % VECTOR and count <= AT_ONCE


def views_of_each(samples: list[Tensor]) -> list[tuple[PortraitView, ...]]:
    """The views of several clients' samples, looked at together."""
    cuts = np.cumsum([len(part) for part in samples])[:-1]
    apart = (
        [replace(view, values=part) for part in np.split(view.values, cuts)]
        for view in views_of(torch.cat(samples))
    )
    return list(zip(*apart, strict=True))


def told_in(bits: int, parts: list[Tensor]) -> PortraitView:
    """The view of these samples, each value told as often as the bits allow."""
    values = torch.cat(parts).numpy().astype(np.float64)
    return PortraitView(values=values, times=max(1, bits // values.shape[1]))


def features(x: Tensor) -> Tensor:
    """Samples that are no pictures as they are; more than `BITS` numbers are averaged down."""
    flat = x.reshape(len(x), -1).float()
    return flat if flat.shape[1] <= BITS else adaptive_avg_pool1d(flat[:, None], BITS)[:, 0]


@dataclass(frozen=True, kw_only=True, eq=False)
class Slopes:
    """Gradients of the mean over the channels, [samples, 1, h, w]: differences across and down, 0 along the border."""

    across: Tensor
    down: Tensor
    length: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Self:
        grey = x.mean(dim=1, keepdim=True) if x.shape[1] > 1 else x
        across = pad((grey[..., 1:-1, 2:] - grey[..., 1:-1, :-2]).div_(2), (1, 1, 1, 1))
        down = pad((grey[..., 2:, 1:-1] - grey[..., :-2, 1:-1]).div_(2), (1, 1, 1, 1))
        return cls(across=across, down=down, length=(across**2).add_(down**2).sqrt_())


def described(x: Tensor, slopes: Slopes) -> Tensor:
    """What is told of standardised pictures: their values and their edges, averaged down.

    Edges, |gradient| of the mean over the channels, show things that are bright on dark here and dark on bright there,
    whose values cancel.
    """
    side = (min(SIDE, x.shape[-2]), min(SIDE, x.shape[-1]))
    parts = (x, slopes.length - USUAL_EDGE)
    return torch.cat([averaged_down(part, side) for part in parts], dim=1)


def averaged_down(x: Tensor, side: tuple[int, int]) -> Tensor:
    """Each picture averaged down into equal parts, flat; to treat all pictures as channels of one is quicker."""
    as_one = x.reshape(1, -1, *x.shape[2:]).contiguous(memory_format=torch.channels_last)
    return adaptive_avg_pool2d(as_one, side).reshape(len(x), -1)


def strokes(slopes: Slopes) -> Tensor:
    """How much of a picture's gradients goes in each of 8 directions in its 4 x 4 parts (Dalal and Triggs, 2005).

    A direction and its opposite are one, a gradient between two directions counts for both by its nearness, and every
    picture is brought to the same total length: sqrt(values) / 2, which fills the range that is told.
    """
    length = slopes.length
    count, _, height, width = length.shape
    angle = torch.atan2(slopes.down, slopes.across).mul_(DIRECTIONS / torch.pi)
    lower = angle.floor()
    for_upper = length * angle.sub_(lower)
    # 32-bit numbers and a power of two: vector instructions do these, without a division for each pixel
    direction = lower.to(torch.int32).bitwise_and_(DIRECTIONS - 1)
    cell = cells(height)[:, None] * CELLS + cells(width)
    first = torch.arange(count, dtype=torch.int32)[:, None, None, None] * (DIRECTIONS * CELLS**2) + cell
    sums = sums_at(first + direction * CELLS**2, length - for_upper)
    sums += sums_at(first + direction.add_(1).bitwise_and_(DIRECTIONS - 1).mul_(CELLS**2), for_upper)
    whole: Tensor = sums / torch.bincount(cell.flatten()).repeat(DIRECTIONS)
    scaled: Tensor = whole / (whole.norm(dim=1, keepdim=True) + 1e-3) * (whole.shape[1] ** 0.5 / 2)
    return scaled.sub_(USUAL_STROKE)


def cells(side: int) -> Tensor:
    """Which of the parts of a picture each of its rows (or columns) is in."""
    return torch.arange(side, dtype=torch.int32) * CELLS // side


def sums_at(places: Tensor, values: Tensor) -> Tensor:
    """For each picture the sums of the values at every place."""
    size = DIRECTIONS * CELLS**2
    found: Tensor = torch.bincount(places.flatten(), values.flatten(), minlength=len(places) * size)
    return found.view(-1, size)
