"""The data sets by their public names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from covey.data.loaders.digits import digits
from covey.data.loaders.idx import mnist
from covey.data.types import Dataset

DATASETS: Final[dict[str, Callable[..., Dataset]]] = {
    "digits": digits,
    "mnist": mnist,
}
