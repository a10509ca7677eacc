"""Models without convolutions: softmax regression and a small multi-layer perceptron."""

from collections.abc import Sequence
from math import prod

from torch import nn

from covey.settings.ranges import Width
from covey.settings.registry import register
from covey.training.models.shapes import linears


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
    return nn.Sequential(nn.Flatten(), *linears([prod(input_shape), *hidden, outputs]))
