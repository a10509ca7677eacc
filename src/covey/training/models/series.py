"""A small network for series of several channels: convolutions over time."""

from torch import nn

from covey.errors import UserError
from covey.settings.ranges import Width
from covey.settings.registry import register


@register("model", "cnn-series")
def cnn_series(input_shape: tuple[int, ...], outputs: int, *, width: Width = 16) -> nn.Sequential:
    """Two convolutions over time with ReLU, the mean over time, one linear layer (6 channels, 4 classes: 2,196).

    Args:
        width: channels of the first convolution; the second has twice as many.
    """
    if len(input_shape) != 2:
        raise UserError(
            f"model.name is 'cnn-series', which takes series (channels, steps), not samples of shape {input_shape}"
        )
    return nn.Sequential(
        nn.Conv1d(input_shape[0], width, 5, padding=2),
        nn.ReLU(),
        nn.Conv1d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(2 * width, outputs),
    )
