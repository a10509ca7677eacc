"""VGG-11 and VGG-19 with batch norm, and ResNet-18, as the papers use them on 32 and 64 pixel pictures."""

from typing import Annotated, Any, Literal

import torch
from torch import nn

from covey.settings.ranges import PartBelowOne, Range
from covey.settings.registry import register
from covey.settings.signatures import takes
from covey.training.models.shapes import flat_size, picture

Wider = Annotated[float, Range(above=0, most=8)]

# Channels of the 3x3 convolutions; 0 is a 2x2 max pooling.
VGG11 = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)
VGG19 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512, 512, 512, 512, 0)


def vgg(
    name: str,
    plan: tuple[int, ...],
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    dropout: PartBelowOne = 0.5,
    width: Wider = 1.0,
) -> nn.Sequential:
    """Convolutions as `plan` says, then a classifier 512-512-512-C.

    Args:
        dropout: share of the units that dropout leaves out.
        width: every layer is that many times as wide; 0.125 trains some 60 times faster.
    """
    channels, _ = picture(name, input_shape, smallest=32)
    features: list[nn.Module] = []
    for full in plan:
        if full:
            wide = max(1, round(full * width))
            features += [nn.Conv2d(channels, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
            channels = wide
        else:
            features.append(nn.MaxPool2d(2))
    flat, hidden = flat_size(nn.Sequential(*features), input_shape), max(1, round(512 * width))
    return nn.Sequential(
        *features,
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(flat, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


@register("model", "vgg11")
@takes(vgg, without=("name", "plan", "input_shape", "outputs"))
def vgg11(input_shape: tuple[int, ...], outputs: int, **settings: Any) -> nn.Sequential:
    """VGG-11 with batch norm, classifier 512-512-512-C; 9,756,426 parameters on 3x32x32, 10 classes."""
    return vgg("vgg11", VGG11, input_shape, outputs, **settings)


@register("model", "vgg19")
@takes(vgg, without=("name", "plan", "input_shape", "outputs"))
def vgg19(input_shape: tuple[int, ...], outputs: int, **settings: Any) -> nn.Sequential:
    """VGG-19 with batch norm, classifier 512-512-512-C; 20,565,834 parameters on 3x32x32, 10 classes."""
    return vgg("vgg19", VGG19, input_shape, outputs, **settings)


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norm, added to the input: relu(body(x) + shortcut(x))."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inside == outside
            else nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride=stride, bias=False), nn.BatchNorm2d(outside)
            )
        )
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.relu(self.body(x) + self.shortcut(x))
        return out


@register("model", "resnet18")
def resnet18(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    stem: Literal["imagenet", "cifar"] = "imagenet",
    width: Wider = 1.0,
) -> nn.Sequential:
    """ResNet-18; 11,181,642 parameters with the embedding paper's 7x7 stem, 11,173,962 with CIFAR's 3x3.

    Args:
        stem: imagenet is the 7x7 stem, cifar the 3x3 one.
        width: every layer is that many times as wide; 0.25 has some 16 times fewer parameters.
    """
    channels, _ = picture("resnet18", input_shape, smallest=8)
    wide = [max(1, round(full * width)) for full in (64, 128, 256, 512)]
    if stem == "imagenet":
        first: list[nn.Module] = [
            nn.Conv2d(channels, wide[0], 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(wide[0]),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
    else:
        first = [nn.Conv2d(channels, wide[0], 3, padding=1, bias=False), nn.BatchNorm2d(wide[0]), nn.ReLU()]
    blocks: list[nn.Module] = []
    inside = wide[0]
    for outside, stride in zip(wide, (1, 2, 2, 2), strict=True):
        blocks += [Residual(inside, outside, stride), Residual(outside, outside, 1)]
        inside = outside
    model = nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, outputs))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return model
