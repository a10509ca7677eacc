"""What can happen to a picture at a client: each effect with a strength from 0 (nothing) to 1 (strong)."""

import math
from collections.abc import Callable
from functools import cache
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

EffectName = Literal["brightness", "contrast", "noise", "blur", "rotation", "colour"]


class Effect(NamedTuple):
    """An effect by name, its strength, and the labels whose pictures it changes (none: all)."""

    name: str
    strength: float
    labels: tuple[int, ...] = ()


def rotated(images: Tensor, degrees: float) -> Tensor:
    """Rotated counter-clockwise about their centres: bilinear, zero outside, same size."""
    if not len(images):
        return images
    height, width = images.shape[-2:]
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # A row maps an output place to an input place, both in units of half the image: hence the ratios of the sides.
    theta = torch.tensor([[c, -s * height / width, 0.0], [s * width / height, c, 0.0]])
    grid = F.affine_grid(theta.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False, padding_mode="zeros")


def brighter(x: Tensor, strength: float, places: Tensor) -> Tensor:  # noqa: ARG001
    """x + strength / 2."""
    return (x + strength / 2).clamp(0, 1)


def flatter(x: Tensor, strength: float, places: Tensor) -> Tensor:  # noqa: ARG001
    """The contrast falls to 1 - 0.9 strength of what it was, around the middle grey."""
    return 0.5 + (x - 0.5) * (1 - 0.9 * strength)


def noisy(x: Tensor, strength: float, places: Tensor) -> Tensor:
    """Normal noise of deviation strength / 2; a sample's own depends only on its place in the data set."""
    table = _noise(tuple(x.shape[1:]))
    return (x + strength / 2 * table[(places * 7919) % len(table)]).clamp(0, 1)


@cache
def _noise(shape: tuple[int, ...]) -> Tensor:
    return torch.randn((256, *shape), generator=torch.Generator().manual_seed(0))


def blurred(x: Tensor, strength: float, places: Tensor) -> Tensor:  # noqa: ARG001
    """A Gaussian of deviation a tenth of the picture's side times strength."""
    deviation = strength * x.shape[-1] / 10
    if deviation < 1e-3:
        return x
    reach = min(math.ceil(2 * deviation), x.shape[-1] - 1, x.shape[-2] - 1)
    steps = torch.arange(-reach, reach + 1, dtype=torch.float32)
    kernel = torch.exp(-steps.square() / (2 * deviation**2))
    kernel = kernel / kernel.sum()
    channels = x.shape[1]
    x = F.pad(x, (reach, reach, reach, reach), mode="replicate")
    x = F.conv2d(x, kernel.view(1, 1, 1, -1).repeat(channels, 1, 1, 1), groups=channels)
    return F.conv2d(x, kernel.view(1, 1, -1, 1).repeat(channels, 1, 1, 1), groups=channels)


def rotating(x: Tensor, strength: float, places: Tensor) -> Tensor:  # noqa: ARG001
    """Rotated by 180 degrees times strength."""
    return rotated(x, 180 * strength)


def coloured(x: Tensor, strength: float, places: Tensor) -> Tensor:  # noqa: ARG001
    """Red, green and blue move on to the next; a grey picture moves towards its negative."""
    other = x.roll(1, dims=1) if x.shape[1] == 3 else 1 - x
    return torch.lerp(x, other, strength)


EFFECTS: dict[str, Callable[[Tensor, float, Tensor], Tensor]] = {
    "brightness": brighter,
    "contrast": flatter,
    "noise": noisy,
    "blur": blurred,
    "rotation": rotating,
    "colour": coloured,
}


def applied(effects: tuple[Effect, ...], x: Tensor, labels: Tensor, places: Tensor) -> Tensor:
    """The pictures, from 0 to 1, after all effects; `labels` and `places` are those in the data set."""
    for effect in effects:
        change = EFFECTS[effect.name]
        if not effect.labels:
            x = change(x, effect.strength, places)
        else:
            here = torch.isin(labels, torch.tensor(effect.labels))
            x = x.clone()
            x[here] = change(x[here], effect.strength, places[here])
    return x
