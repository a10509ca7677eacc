"""Who is who in a simulation: which data a client holds in which round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from covey.data.pooled import Pooled
from covey.data.types import Federation, Samples, View
from covey.fleet.devices import Devices
from covey.fleet.drift import drifted

__all__ = ["ClientData", "Pooled"]


@dataclass(frozen=True, eq=False)
class ClientData:
    """The clients' data, with the drifts that the devices' settings foresee. Negative ids are the server itself."""

    data: Federation
    devices: Devices

    @cached_property
    def unlabelled(self) -> frozenset[int]:
        """Clients without labels: nothing to train on; their inputs are those of their test data."""
        return self.devices.unlabelled()

    @cached_property
    def all_train(self) -> int:
        """Everybody's training samples."""
        return sum(self.sizes(i)[0] for i in range(len(self)))

    def __len__(self) -> int:
        return len(self.data.shares)

    def train(self, client: int, number: int) -> View:
        """A client's training data in round `number`; at the server itself, everybody's."""
        if client < 0:
            members = self.devices.members(len(self), number)
            return Pooled([self.train(i, number) for i in members if i not in self.unlabelled])
        if client in self.unlabelled:
            return self.data.shares[client].train.select(slice(0))
        return self._drifted(self.data.shares[client].train, client, number)

    def test(self, client: int, number: int) -> View:
        """A client's test data in round `number`; at the server itself, the global test set."""
        if client < 0:
            return self.data.test
        return self._drifted(self.data.shares[client].test, client, number)

    def sizes(self, client: int) -> tuple[int, int]:
        """Number of training and test samples."""
        if client < 0:
            return self.all_train, len(self.data.test)
        share = self.data.shares[client]
        return 0 if client in self.unlabelled else len(share.train), len(share.test)

    def _drifted(self, samples: Samples, client: int, number: int) -> View:
        if not self.devices.drifts:
            return samples
        training = samples is self.data.shares[client].train
        others = {i: share.train if training else share.test for i, share in enumerate(self.data.shares)}
        return drifted(samples, client, number, self.devices.drifts, others)
