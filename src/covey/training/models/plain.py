"""Models without convolutions: softmax regression and a small multi-layer perceptron."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn

from covey.settings.ranges import Width
from covey.settings.registry import register


@register("model", "softmax")
def softmax(input_shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Softmax regression, one linear layer with a bias that starts at zero (7,850 parameters on 1x28x28)."""
    linear = nn.Linear(prod(input_shape), outputs)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(nn.Flatten(), linear)


@register("model", "mlp")
def mlp(input_shape: tuple[int, ...], outputs: int, *, hidden: Sequence[Width] = (64,)) -> nn.Sequential:
    """Multi-layer perceptron with ReLU; `hidden` gives the widths (IFCA on MNIST: `hidden = [200]`).

    Args:
        hidden: widths of the hidden layers.
    """
    widths = [prod(input_shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for inside, outside in pairwise(widths):
        layers += [nn.Linear(inside, outside), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))
