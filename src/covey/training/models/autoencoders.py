"""The embedding paper's autoencoders: `.encoder` makes the code, `.decoder` a picture in [0, 1] from it."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Annotated

from torch import nn

from covey.settings.ranges import NotEmpty, Width
from covey.settings.registry import register
from covey.training.models.shapes import linears, picture


@register("model", "ae-fc")
def ae_fc(
    input_shape: tuple[int, ...], *, widths: Annotated[Sequence[Width], NotEmpty()] = (50, 20)
) -> nn.Sequential:
    """Fully connected autoencoder 784-50-20-50-784; 81,304 parameters (attack study: widths 100, 50).

    Args:
        widths: of the encoder's layers.
    """
    sizes = [prod(input_shape), *widths]
    encoder = linears(sizes)
    decoder = linears(sizes[::-1])
    return nn.Sequential(
        OrderedDict(
            encoder=nn.Sequential(nn.Flatten(), *encoder),
            decoder=nn.Sequential(*decoder, nn.Sigmoid(), nn.Unflatten(1, tuple(input_shape))),
        )
    )


@register("model", "ae-conv")
def ae_conv(input_shape: tuple[int, ...], *, batch_norm: bool = True) -> nn.Sequential:
    """Convolutional autoencoder 12-24-48-24-12 (4x4, stride 2); 47,601 parameters on 3 channels.

    The code is 48 x H/8 x W/8; `batch_norm = false` is the attack study's variant.

    Args:
        batch_norm: whether layers are followed by batch norm.
    """
    channels, _ = picture("ae-conv", input_shape, smallest=8, multiple=8)
    widths = [channels, 12, 24, 48]
    encoder: list[nn.Module] = []
    for inside, outside in pairwise(widths):
        encoder += [
            nn.Conv2d(inside, outside, 4, stride=2, padding=1),
            *_norm(outside, batch_norm),
            nn.ReLU(),
        ]
    decoder: list[nn.Module] = []
    for inside, outside in zip(widths[:0:-1], widths[-2::-1], strict=True):
        last = outside == channels and inside == 12
        decoder += [
            nn.ConvTranspose2d(inside, outside, 4, stride=2, padding=1),
            *_norm(outside, batch_norm),
            nn.Sigmoid() if last else nn.ReLU(),
        ]
    return nn.Sequential(OrderedDict(encoder=nn.Sequential(*encoder), decoder=nn.Sequential(*decoder)))


def _norm(width: int, wanted: bool) -> list[nn.Module]:
    return [nn.BatchNorm2d(width)] if wanted else []
