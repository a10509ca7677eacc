"""The papers' small convolutional networks; the first linear layer follows the picture's size."""

from collections.abc import Sequence

from torch import nn

from covey.settings.ranges import PartBelowOne
from covey.settings.registry import register
from covey.training.models.shapes import flat_size, linears, picture


def _headed(
    features: list[nn.Module],
    input_shape: tuple[int, ...],
    head: list[int],
    between: type[nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """`features`, then linear layers of the widths in `head` with `between` between them."""
    flat = flat_size(nn.Sequential(*features), input_shape)
    return nn.Sequential(*features, nn.Flatten(), *linears([flat, *head], between))


def _pooled(
    channels: int,
    widths: Sequence[int],
    *,
    padding: Sequence[int] = (0, 0),
    between: type[nn.Module] = nn.ReLU,
    norm: bool = False,
) -> list[nn.Module]:
    """5x5 convolutions of these widths, each with batch norm if wanted, `between` and 2x2 max pooling."""
    layers: list[nn.Module] = []
    for inside, outside, around in zip((channels, *widths), widths, padding, strict=False):
        layers.append(nn.Conv2d(inside, outside, 5, padding=around))
        layers += [nn.BatchNorm2d(outside)] if norm else []
        layers += [between(), nn.MaxPool2d(2)]
    return layers


@register("model", "lenet5")
def lenet5(input_shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """LeNet-5 with ReLU and max pooling: conv5 6, conv5 16, 120-84; 61,706 parameters on 1x28x28.

    HACCS uses it on 3x32x32 (62,006 parameters). Pictures below 32 pixels are padded by 2, as LeNet's were.
    """
    channels, height = picture("lenet5", input_shape, smallest=12)
    features = _pooled(channels, (6, 16), padding=(2 if height < 32 else 0, 0))
    return _headed(features, input_shape, [120, 84, outputs])


@register("model", "lenet-tanh")
def lenet_tanh(input_shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """The embedding paper's LeNet: conv5 16, conv5 32, 120-84, tanh; 85,822 parameters on 1x28x28."""
    channels, _ = picture("lenet-tanh", input_shape, smallest=16)
    features = _pooled(channels, (16, 32), between=nn.Tanh)
    return _headed(features, input_shape, [120, 84, outputs], between=nn.Tanh)


@register("model", "cnn-mnist")
def cnn_mnist(input_shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """CFIC's MNIST network: conv5 32, conv5 64 (both padded), 512; 1,663,370 parameters on 1x28x28."""
    channels, _ = picture("cnn-mnist", input_shape, smallest=4)
    features = _pooled(channels, (32, 64), padding=(2, 2))
    return _headed(features, input_shape, [512, outputs])


@register("model", "cnn-mnist-small")
def cnn_mnist_small(
    input_shape: tuple[int, ...], outputs: int, *, dropout: PartBelowOne = 0.5
) -> nn.Sequential:
    """The topologies paper's MNIST network: conv5 10, conv5 20, 50, dropout; 21,840 parameters.

    Args:
        dropout: share of the units that dropout leaves out.
    """
    channels, _ = picture("cnn-mnist-small", input_shape, smallest=16)
    features = [
        nn.Conv2d(channels, 10, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(10, 20, 5),
        nn.Dropout2d(dropout),
        nn.MaxPool2d(2),
        nn.ReLU(),
    ]
    flat = flat_size(nn.Sequential(*features), input_shape)
    return nn.Sequential(
        *features, nn.Flatten(), nn.Linear(flat, 50), nn.ReLU(), nn.Dropout(dropout), nn.Linear(50, outputs)
    )


@register("model", "cnn-fashion")
def cnn_fashion(input_shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """The topologies paper's Fashion-MNIST network: conv5 16, conv5 32, batch norm; 29,034 parameters."""
    channels, _ = picture("cnn-fashion", input_shape, smallest=4)
    features = _pooled(channels, (16, 32), padding=(2, 2), norm=True)
    return _headed(features, input_shape, [outputs])


@register("model", "cnn-cifar")
def cnn_cifar(input_shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """CFIC's network for CIFAR and SVHN: conv5 64, conv5 64, 384-192; 797,962 parameters on 3x32x32."""
    channels, _ = picture("cnn-cifar", input_shape, smallest=16)
    features = _pooled(channels, (64, 64))
    return _headed(features, input_shape, [384, 192, outputs])


@register("model", "cnn-emnist")
def cnn_emnist(input_shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """CFIC's EMNIST network: conv5 32, conv5 32, conv5 64, 256; 241,374 parameters on 1x28x28, 62 classes."""
    channels, _ = picture("cnn-emnist", input_shape, smallest=20)
    features = [
        nn.Conv2d(channels, 32, 5),
        nn.ReLU(),
        nn.Conv2d(32, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
    ]
    return _headed(features, input_shape, [256, outputs])


@register("model", "cnn-femnist")
def cnn_femnist(input_shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """HACCS' FEMNIST network: conv5 32, conv5 64, 2048; 2,278,334 parameters on 1x28x28, 62 classes."""
    channels, _ = picture("cnn-femnist", input_shape, smallest=16)
    features = _pooled(channels, (32, 64))
    return _headed(features, input_shape, [2048, outputs])
