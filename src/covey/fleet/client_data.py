"""Who is who in a simulation: which data a client holds in which round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.data.types import Dataset, Federation, Samples, View
from covey.fleet.devices import Devices


@dataclass(frozen=True, eq=False)
class Pooled:
    """Several clients' samples as if they lay in one place."""

    parts: Sequence[Samples]

    @property
    def dataset(self) -> Dataset:
        return self.parts[0].dataset

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def tensors(self) -> tuple[Tensor, Tensor]:
        x, y = zip(*(part.tensors() for part in self.parts), strict=True)
        return torch.cat(x), torch.cat(y)

    def labels(self) -> NDArray[np.generic]:
        return np.concatenate([part.labels() for part in self.parts])

    def select(self, positions: NDArray[np.integer] | slice) -> Pooled:
        """The samples at these positions, in this order: one part for each stretch that lies at one client."""
        wanted = np.arange(len(self))[positions]
        ends = np.cumsum([len(part) for part in self.parts])
        owner = np.searchsorted(ends, wanted, side="right")
        if not len(wanted):
            return Pooled([self.parts[0].select(wanted)])
        cuts = np.flatnonzero(np.diff(owner)) + 1
        stretches = zip(owner[np.r_[0, cuts]].tolist(), np.split(wanted, cuts), strict=True)
        return Pooled(
            [self.parts[i].select(places - (ends[i] - len(self.parts[i]))) for i, places in stretches]
        )


@dataclass(frozen=True, eq=False)
class ClientData:
    """The clients' data, with the drifts that the devices' settings foresee. Negative ids are the server itself."""

    data: Federation
    devices: Devices

    def __len__(self) -> int:
        return len(self.data.shares)

    def train(self, client: int, number: int) -> View:
        """A client's training data in round `number`; at the server itself, everybody's."""
        if client < 0:
            members = self.devices.members(len(self), number)
            return Pooled([self._drifted(self.data.shares[i].train, i, number) for i in members])
        return self._drifted(self.data.shares[client].train, client, number)

    def test(self, client: int, number: int) -> View:
        """A client's test data in round `number`; at the server itself, the global test set."""
        if client < 0:
            return self.data.test
        return self._drifted(self.data.shares[client].test, client, number)

    def sizes(self, client: int) -> tuple[int, int]:
        """Number of training and test samples."""
        if client < 0:
            return sum(len(share.train) for share in self.data.shares), len(self.data.test)
        share = self.data.shares[client]
        return len(share.train), len(share.test)

    def _drifted(self, samples: Samples, client: int, number: int) -> Samples:
        if not self.devices.drifts:
            return samples
        change = self.devices.drift_at(number).get(client)
        if change is None:
            return samples
        now = samples.shift
        return samples.shifted(
            replace(
                now,
                turns=now.turns + change["turns"],
                label_offset=now.label_offset + change["label_offset"],
            )
        )
