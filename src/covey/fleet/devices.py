"""What the clients' machines are like: speed, links, who is away, who joins, leaves or drifts, and when."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

import numpy as np

from covey.data.effects import EffectName
from covey.errors import UserError
from covey.fleet.drift import Course
from covey.fleet.profiles import Device
from covey.settings.catalogue import PROFILES
from covey.settings.choices import OneOf, complete
from covey.settings.ranges import Count, Natural, NotEmpty, NotNegative, PartBelowOne, Positive, Share
from covey.settings.signatures import only_with, settings_of, validated_in

ProfileTable = Mapping[str, Any]
Stream = Callable[..., np.random.Generator]
"""Names -> generator: `covey.core.round.stream` with the run's seed already given."""


PROFILE = OneOf(PROFILES, given=("draws",))
Clients = Natural | Annotated[tuple[Natural, ...], NotEmpty()]
DEVICE_FIELDS = tuple(field.name for field in fields(Device))


@dataclass(frozen=True, kw_only=True)
class Special(Device):
    """Devices that differ from the profile."""

    clients: Clients

    changes: ClassVar = DEVICE_FIELDS


@dataclass(frozen=True, kw_only=True)
class Change:
    """Clients that join or leave in a round."""

    clients: Clients
    round: Natural


@dataclass(frozen=True, kw_only=True)
class Join(Change):
    """Clients that join in a round, with or without labels of their training data."""

    labels: bool = True


@dataclass(frozen=True, kw_only=True)
class Drift(Change):
    """Clients whose data change in a round."""

    rotations: int = 0
    label_offset: int = 0
    images: tuple[EffectName, ...] = ()
    strength: Share = 1.0
    mix_of: Natural | None = None
    course: Course = "sudden"
    rounds: Count = 1
    stagger: Natural = 0

    changes: ClassVar = ("rotations", "label_offset", "images", "mix_of")

    def __post_init__(self) -> None:
        only_with("devices.drifts", self, "strength", bool(self.images), "images")
        only_with(
            "devices.drifts", self, "rounds", self.course != "sudden", 'course = "gradual" or "recurring"'
        )


ENTRIES: dict[str, type] = {"special": Special, "joins": Join, "leaves": Change, "drifts": Drift}


@validated_in("devices")
@dataclass(frozen=True, kw_only=True)
class Devices:
    """The fleet's machines and everything that happens to them; the same for every method with the same seed.

    Args:
        profile: ideal (equal devices, free links), haccs (the paper's categories: 60/20/15/5 %), published (the
            authors' delays), or your own.
        pace: seconds per sample on a reference device.
        dropout: share of the devices that are away in each round.
        loss: chance that a reply never arrives.
        deadline: seconds that the server waits at most; none: for everybody.
        special: tables {clients, compute, up, down, latency, delay, availability} in place of the profile's values.
        joins: tables {clients, round, labels}: there from that round on; with labels = false they have no labelled
            samples, so they never train, and are served by what their inputs tell.
        leaves: tables {clients, round}: gone from that round on.
        drifts: tables {clients, round, ...}: data that change from that round on. What: rotations, label_offset, images
            with strength, mix_of (another client's labels). How: course (sudden, gradual, recurring), rounds, stagger.

    Examples:
        >>> devices = covey.Devices(profile="haccs", dropout=0.1, joins=[{"clients": [3, 4], "round": 10}])
    """

    profile: Annotated[Any, PROFILE] = "ideal"
    pace: NotNegative = 0.01
    dropout: PartBelowOne = 0.0
    loss: PartBelowOne = 0.0
    deadline: Positive | None = None
    special: Sequence[ProfileTable] = ()
    joins: Sequence[ProfileTable] = ()
    leaves: Sequence[ProfileTable] = ()
    drifts: Sequence[ProfileTable] = ()

    def __post_init__(self) -> None:
        for name, entry in ENTRIES.items():
            for at, table in enumerate(getattr(self, name)):
                whole = complete(f"devices.{name}[{at}]", settings_of(entry), table)
                changes = getattr(entry, "changes", ())
                if changes and not any(key in table for key in changes):
                    raise UserError(f"devices.{name}[{at}] changes nothing; it needs {' or '.join(changes)}")
                entry(**whole)

    def build(self, clients: int, rng: np.random.Generator) -> list[Device]:
        """Draw the devices; client i's is the same however many clients follow it."""
        profile = PROFILE.made("devices.profile", self.profile)
        if self.profile == "ideal":  # all are equal: no draws, and one object for a million clients
            devices = [Device()] * clients
        else:
            devices = [profile(row) for row in rng.random((clients, 5))]
        for table in self.special:
            values = {field: float(table[field]) for field in DEVICE_FIELDS if field in table}
            for client in _clients("special", table, clients):
                devices[client] = Device(**{**vars(devices[client]), **values})
        return devices

    def members(self, clients: int, number: int) -> Sequence[int]:
        """The ids that exist in round `number`: the latest join or leave so far decides."""
        if not self.joins and not self.leaves:
            return range(clients)
        events: dict[int, list[tuple[int, bool]]] = {}
        for present, name, tables in ((True, "joins", self.joins), (False, "leaves", self.leaves)):
            for table in tables:
                for client in _clients(name, table, clients):
                    events.setdefault(client, []).append((table["round"], present))
        return [i for i in range(clients) if _present(sorted(events.get(i, [])), number)]

    def unlabelled(self) -> frozenset[int]:
        """Clients whose samples have no labels, as far as anybody but the measuring can see."""
        tables = [table for table in self.joins if not table.get("labels", True)]
        return frozenset(client for table in tables for client in _clients("joins", table, None))

    def away(
        self, ids: Collection[int], number: int, stream: Stream, devices: Sequence[Device] = ()
    ) -> set[int]:
        """Who cannot be reached in round `number`: floor(dropout * n) drawn without replacement, and the
        devices whose own availability fails them. From streams of their own: all methods see the same."""
        gone: set[int] = set()
        if not self.dropout and self.alike:
            return gone
        ordered = sorted(ids)
        count = math.floor(self.dropout * len(ordered) + 1e-9)
        if count:
            gone.update(stream("away", number).choice(ordered, size=count, replace=False).tolist())
        unsure = {i for i, device in enumerate(devices) if device.availability < 1}.intersection(ordered)
        if unsure:
            luck = stream("available", number).random(max(ordered) + 1)
            gone.update(i for i in unsure if luck[i] >= devices[i].availability)
        return gone

    @property
    def alike(self) -> bool:
        """Whether all devices are equal, and none is away by itself: only a profile or a table makes others."""
        return self.profile == "ideal" and not self.special

    def lost(self, ids: Collection[int], names: Sequence[str | int], stream: Stream) -> set[int]:
        """Whose reply never arrives in the call that `names` (round, kind, call) identifies."""
        if not self.loss or not ids:
            return set()
        luck = stream("lost", *names).random(max(ids) + 1)
        return {i for i in ids if luck[i] < self.loss}


def _present(events: Sequence[tuple[int, bool]], number: int) -> bool:
    past = [present for start, present in events if start <= number]
    if past:
        return past[-1]
    return not events or not events[0][1]


def _clients(name: str, table: ProfileTable, clients: int | None) -> list[int]:
    """The clients that an entry is about; with `clients`, they must be there."""
    given = table["clients"]
    listed = [given] if isinstance(given, int) else list(given)
    for client in listed:
        if clients is not None and client >= clients:
            raise UserError(f"devices.{name}.clients is {client}; allowed: from 0 to {clients - 1}")
    return listed
