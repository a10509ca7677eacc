"""Samples that Ray's workers read themselves, from storage that all machines share."""

import hashlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.data.types import Federation
from covey.errors import RunError, UserError
from covey.fleet.client_data import ClientData
from covey.fleet.devices import Devices
from covey.settings.toml import read_tables


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedData:
    """How a worker loads the clients' data, and what it must find."""

    source: Callable[[], Federation]
    devices: Devices
    mark: str

    def load(self) -> ClientData:
        """The data, read on this machine; a worker with other files ends, it does not train on them."""
        found = self.source()
        if data_mark(found) != self.mark:
            raise RunError(
                f"{socket.gethostname()} has other samples than the machine that started the run; "
                "give both the same COVEY_DATA"
            )
        return ClientData(found, self.devices)


def shared(data: ClientData, source: Callable[[], Federation] | None) -> SharedData:
    """The data as workers load it again."""
    if source is None:
        raise UserError(
            'engine.data is "shared", which needs a run from a file or a command, so that workers can load the same '
            'data; allowed: "store"'
        )
    return SharedData(source=source, devices=data.devices, mark=data_mark(data.data))


def data_mark(data: Federation) -> str:
    """Equal for equal data partitioned in the same way: all labels, and the first and the last sample."""
    mark = hashlib.sha256(repr((data.dataset.name, tuple(data.dataset.x.shape))).encode())
    for part in (data.dataset.x[:1], data.dataset.x[-1:], data.dataset.y):
        mark.update(part.contiguous().numpy().tobytes())
    for share in data.shares:
        mark.update(share.train.labels().tobytes())
    return mark.hexdigest()


def runtime_env(file: str) -> dict[str, Any] | None:
    """Ray's runtime_env as a TOML file holds it: working_dir, pip, env_vars and whatever else Ray takes."""
    return dict(read_tables(Path(file))) if file else None
