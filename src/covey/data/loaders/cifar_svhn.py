"""CIFAR-10, CIFAR-100 and SVHN from train.npz and test.npz."""

from pathlib import Path
from typing import Literal

from covey.data.augment import Augment
from covey.data.loaders.images import Scaling, scale_for, train_and_test
from covey.data.sources import SOURCES
from covey.data.types import Dataset, Scale
from covey.settings.registry import register

CIFAR10_SCALE = Scale((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


@register("data set", "cifar10")
def cifar10(
    *, folder: Path | None = None, scaling: Scaling = "standard", augment: Augment = "none"
) -> Dataset:
    """CIFAR-10: photographs of 3x32x32 pixels, 10 classes, from train.npz and test.npz (x, y, classes).

    Args:
        scaling: unit is [0, 1]; half is (x - 0.5) / 0.5; standard is by the usual means (0.4914, 0.4822, 0.4465)
            and standard deviations (0.2023, 0.1994, 0.2010).
    """
    return _load("cifar10", folder, scaling, augment, usual=CIFAR10_SCALE)


@register("data set", "cifar100")
def cifar100(
    *,
    folder: Path | None = None,
    scaling: Scaling = "standard",
    augment: Augment = "none",
    level: Literal["fine", "coarse"] = "fine",
) -> Dataset:
    """CIFAR-100: photographs of 3x32x32 pixels, 100 fine or 20 coarse classes, from train.npz and test.npz.

    The files hold x, y, classes, y_coarse and coarse_classes.

    Args:
        level: fine is 100 classes, coarse 20.
    """
    keys = ("y", "classes") if level == "fine" else ("y_coarse", "coarse_classes")
    return _load("cifar100", folder, scaling, augment, keys=keys)


@register("data set", "svhn")
def svhn(*, folder: Path | None = None, scaling: Scaling = "standard", augment: Augment = "none") -> Dataset:
    """SVHN: photographed house-number digits of 3x32x32 pixels, 10 classes, from train.npz and test.npz.

    The digit 0 has label 0.
    """
    return _load("svhn", folder, scaling, augment)


def _load(
    name: str,
    folder: Path | None,
    scaling: Scaling,
    augment: Augment,
    *,
    usual: Scale | None = None,
    keys: tuple[str, str] = ("y", "classes"),
) -> Dataset:
    x, y, train, test, classes = train_and_test(SOURCES[name], folder, labels=keys[0], names=keys[1])
    scale = scale_for(scaling, x, train, usual)
    return Dataset(name=name, x=x, y=y, train=train, test=test, classes=classes, scale=scale, augment=augment)
