"""Who is who in a simulation: which data a client holds in which round."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, overload

import numpy as np

from covey.data.pooled import Pooled
from covey.data.types import Federation, Indices, Samples, View
from covey.fleet.devices import Devices
from covey.fleet.drift import drifted


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
    def _sizes(self) -> Indices:
        return self.data.sizes()

    @cached_property
    def all_train(self) -> int:
        """Everybody's training samples."""
        labelled = np.ones(len(self), bool)
        labelled[list(self.unlabelled)] = False
        return int(self._sizes[labelled, 0].sum())

    def __len__(self) -> int:
        return len(self.data.shares)

    def train(self, client: int, number: int) -> View:
        """A client's training data in round `number`; at the server itself, everybody's."""
        if client < 0:
            members = self.devices.members(len(self), number)
            if self.unlabelled:
                members = [i for i in members if i not in self.unlabelled]
            return Pooled(TrainingData(self, members, number))
        if client in self.unlabelled:
            return self.data.shares[client].train.select(slice(0))
        return self._drifted("train", client, number)

    def test(self, client: int, number: int) -> View:
        """A client's test data in round `number`; at the server itself, the global test set."""
        if client < 0:
            return self.data.test
        return self._drifted("test", client, number)

    def sizes(self, client: int) -> tuple[int, int]:
        """Number of training and test samples."""
        if client < 0:
            return self.all_train, len(self.data.test)
        train, test = self._sizes[client].tolist()
        return 0 if client in self.unlabelled else train, test

    def _drifted(self, part: Literal["train", "test"], client: int, number: int) -> View:
        def of(other: int) -> Samples:
            share = self.data.shares[other]
            return share.train if part == "train" else share.test

        return (
            drifted(of(client), client, number, self.devices.drifts, of)
            if self.devices.drifts
            else of(client)
        )


@dataclass(frozen=True, eq=False)
class TrainingData(Sequence[View]):
    """The training data of several clients, each put together when it is looked at: the server seldom looks."""

    data: ClientData
    clients: Sequence[int]
    number: int

    def __len__(self) -> int:
        return len(self.clients)

    @overload
    def __getitem__(self, place: int) -> View: ...
    @overload
    def __getitem__(self, place: slice) -> list[View]: ...
    def __getitem__(self, place: int | slice) -> View | list[View]:
        if isinstance(place, slice):
            return [self.data.train(client, self.number) for client in self.clients[place]]
        return self.data.train(self.clients[place], self.number)
