"""The data sets by their public names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from covey.data.loaders.cifar_svhn import cifar10, cifar100, svhn
from covey.data.loaders.digits import digits
from covey.data.loaders.femnist import femnist
from covey.data.loaders.idx import fashion_mnist, mnist
from covey.data.loaders.pacs import pacs
from covey.data.types import Dataset

DATASETS: Final[dict[str, Callable[..., Dataset]]] = {
    "digits": digits,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "svhn": svhn,
    "femnist": femnist,
    "pacs": pacs,
}
