"""The partitions by their public names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from covey.data.partitions.cutting import Parts
from covey.data.partitions.dirichlet import dir_class
from covey.data.partitions.even import iid

PARTITIONS: Final[dict[str, Callable[..., Parts]]] = {
    "iid": iid,
    "dir-class": dir_class,
}
