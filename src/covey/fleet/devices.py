"""What the clients' machines are like: speed, links, who is away, who joins, leaves or drifts, and when."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from covey.errors import UserError
from covey.fleet.drift import FIELDS as DRIFT_FIELDS
from covey.fleet.drift import check_drift
from covey.ranges import NotNegative, PartBelowOne, Positive

Profile = Literal["ideal", "haccs", "published"]
Table = Mapping[str, Any]
Stream = Callable[..., np.random.Generator]
"""Names -> generator: `covey.core.stream` with the run's seed already given."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """One client's machine: compute multiplier (1 = reference), Mbit/s, round trip in s, fixed delay in s."""

    compute: float = 1.0
    up: float = math.inf
    down: float = math.inf
    latency: float = 0.0
    delay: float = 0.0
    availability: float = 1.0

    def seconds(self, *, bytes_down: int, bytes_up: int, work: float, pace: float) -> float:
        """Transfer both ways + round trip + `work` samples at `pace` reference seconds per sample (+ delay)."""
        transfer = 8e-6 * bytes_down / self.down + 8e-6 * bytes_up / self.up
        return transfer + self.latency + self.delay + work * pace * self.compute


@dataclass(frozen=True, kw_only=True)
class Category:
    """One line of a category table: its share of the devices and the range that values are drawn from."""

    share: float
    low: float
    high: float


# HACCS, Table II, fast to very slow. Compute and bandwidth are drawn separately; round trip 20-200 ms.
PAPER_COMPUTE = (
    Category(share=0.60, low=1.0, high=1.0),
    Category(share=0.20, low=1.5, high=2.0),
    Category(share=0.15, low=2.0, high=2.5),
    Category(share=0.05, low=2.5, high=3.0),
)
PAPER_BANDWIDTH = (
    Category(share=0.60, low=75.0, high=100.0),
    Category(share=0.20, low=50.0, high=75.0),
    Category(share=0.15, low=25.0, high=50.0),
    Category(share=0.05, low=1.0, high=25.0),
)
# The authors' code instead adds a compute delay of 10 s times these, with other shares, and a fixed transfer.
CODE_DELAY = (
    Category(share=0.60, low=0.0, high=0.5),
    Category(share=0.20, low=0.5, high=1.0),
    Category(share=0.14, low=1.0, high=1.5),
    Category(share=0.06, low=1.5, high=2.0),
)
CODE_BANDWIDTH = tuple(
    Category(share=code.share, low=paper.low, high=paper.high)
    for code, paper in zip(CODE_DELAY, PAPER_BANDWIDTH, strict=True)
)
CODE_DELAY_UNIT = 10.0  # seconds
CODE_TRANSFER = 10 * 2**20 * 8e-6  # Mbit: 10 MiB, one way, whatever the model
ROUND_TRIP = (0.020, 0.200)  # seconds

DEVICE_FIELDS = ("compute", "up", "down", "latency", "delay", "availability")


@dataclass(frozen=True, kw_only=True)
class Devices:
    """The fleet's machines and everything that happens to them; the same for every method with the same seed.

    Args:
        profile: ideal (equal devices, free links), haccs (the paper's categories: 60/20/15/5 %) or published (the
            authors' delays).
        pace: seconds per sample on a reference device.
        dropout: share of the devices that are away in each round.
        loss: chance that a reply never arrives.
        deadline: seconds that the server waits at most; none: for everybody.
        special: tables {clients, compute, up, down, latency, delay, availability} in place of the profile's values.
        joins: tables {clients, round}: there from that round on.
        leaves: tables {clients, round}: gone from that round on.
        drifts: tables {clients, round, ...}: data that change from that round on. What: turns, label_offset, pictures
            with strength, mix_of (another client's labels). How: course (sudden, gradual, recurring), rounds, stagger.
    """

    profile: Profile = "ideal"
    pace: NotNegative = 0.01
    dropout: PartBelowOne = 0.0
    loss: PartBelowOne = 0.0
    deadline: Positive | None = None
    special: Sequence[Table] = ()
    joins: Sequence[Table] = ()
    leaves: Sequence[Table] = ()
    drifts: Sequence[Table] = ()

    def __post_init__(self) -> None:
        if self.profile not in get_args(Profile):
            allowed = ", ".join(get_args(Profile))
            raise UserError(f'devices.profile is "{self.profile}"; it must be one of {allowed}.')
        _check_number("devices.pace", self.pace, 0.0, math.inf)
        _check_number("devices.dropout", self.dropout, 0.0, 1.0, open_top=True)
        _check_number("devices.loss", self.loss, 0.0, 1.0, open_top=True)
        if self.deadline is not None:
            _check_number("devices.deadline", self.deadline, 0.0, math.inf, open_bottom=True)
        for table in _tables("special", self.special, DEVICE_FIELDS):
            _check_special(table)
        for name, tables in (("joins", self.joins), ("leaves", self.leaves)):
            for table in _tables(name, tables, ("round",)):
                _check_whole(f"devices.{name}.round", table.get("round"), 0)
        for table in _tables("drifts", self.drifts, DRIFT_FIELDS):
            check_drift(table)
            _check_whole("devices.drifts.round", table.get("round"), 0)
            for field in ("turns", "label_offset"):
                _check_whole(f"devices.drifts.{field}", table.get(field, 0), None)

    def build(self, clients: int, rng: np.random.Generator) -> list[Device]:
        """Draw the devices; client i's is the same however many clients follow it."""
        draws = rng.random((clients, 5))
        devices = [self._draw(row) for row in draws]
        for table in self.special:
            values = {field: float(table[field]) for field in DEVICE_FIELDS if field in table}
            for client in _clients("special", table, clients):
                devices[client] = Device(**{**vars(devices[client]), **values})
        return devices

    def _draw(self, row: np.ndarray) -> Device:
        if self.profile == "ideal":
            return Device()
        latency = ROUND_TRIP[0] + float(row[4]) * (ROUND_TRIP[1] - ROUND_TRIP[0])
        if self.profile == "haccs":
            link = _pick(PAPER_BANDWIDTH, row[2], row[3])
            return Device(compute=_pick(PAPER_COMPUTE, row[0], row[1]), up=link, down=link, latency=latency)
        wait = CODE_DELAY_UNIT * _pick(CODE_DELAY, row[0], row[1])
        return Device(delay=wait + CODE_TRANSFER / _pick(CODE_BANDWIDTH, row[2], row[3]), latency=latency)

    def members(self, clients: int, number: int) -> list[int]:
        """The ids that exist in round `number`: the latest join or leave so far decides."""
        if not self.joins and not self.leaves:
            return list(range(clients))
        events: dict[int, list[tuple[int, bool]]] = {}
        for present, name, tables in ((True, "joins", self.joins), (False, "leaves", self.leaves)):
            for table in tables:
                for client in _clients(name, table, clients):
                    events.setdefault(client, []).append((table["round"], present))
        return [i for i in range(clients) if _present(sorted(events.get(i, [])), number)]

    def away(
        self, ids: Collection[int], number: int, stream: Stream, devices: Sequence[Device] = ()
    ) -> set[int]:
        """Who cannot be reached in round `number`: floor(dropout * n) drawn without replacement, and the
        devices whose own availability fails them. From streams of their own: all methods see the same."""
        ordered = sorted(ids)
        count = math.floor(self.dropout * len(ordered) + 1e-9)
        gone: set[int] = set()
        if count:
            gone.update(stream("away", number).choice(ordered, size=count, replace=False).tolist())
        unsure = {i for i, device in enumerate(devices) if device.availability < 1}.intersection(ordered)
        if unsure:
            luck = stream("available", number).random(max(ordered) + 1)
            gone.update(i for i in unsure if luck[i] >= devices[i].availability)
        return gone

    def lost(self, ids: Collection[int], names: Sequence[str | int], stream: Stream) -> set[int]:
        """Whose reply never arrives in the call that `names` (round, kind, call) identifies."""
        if not self.loss or not ids:
            return set()
        luck = stream("lost", *names).random(max(ids) + 1)
        return {i for i in ids if luck[i] < self.loss}

    def drift_at(self, number: int) -> dict[int, dict[str, int]]:
        """The change in force in round `number` of each drifted client; later tables replace earlier ones."""
        changes: dict[int, dict[str, int]] = {}
        for table in sorted(self.drifts, key=lambda table: int(table["round"])):
            if table["round"] <= number:
                change = {field: int(table.get(field, 0)) for field in ("turns", "label_offset")}
                changes.update(dict.fromkeys(_clients("drifts", table, None), change))
        return changes


def _pick(table: Sequence[Category], which: float, where: float) -> float:
    """The value at `where` in [0, 1) of the category that `which` in [0, 1) falls into."""
    edges = np.cumsum([line.share for line in table[:-1]])
    line = table[int(np.searchsorted(edges, which, side="right"))]
    return line.low + float(where) * (line.high - line.low)


def _present(events: Sequence[tuple[int, bool]], number: int) -> bool:
    past = [present for start, present in events if start <= number]
    if past:
        return past[-1]
    return not events or not events[0][1]


def _tables(name: str, tables: Sequence[Table], fields: Collection[str]) -> Sequence[Table]:
    for table in tables:
        if not isinstance(table, Mapping):
            raise UserError(f"devices.{name} holds {table!r}; each entry must be a table with clients.")
        for key in table:
            if key != "clients" and key not in fields:
                allowed = ", ".join(["clients", *fields])
                raise UserError(f'devices.{name} has the unknown key "{key}"; allowed are {allowed}.')
        _clients(name, table, None)
    return tables


def _clients(name: str, table: Table, clients: int | None) -> list[int]:
    given = table.get("clients")
    listed = [given] if isinstance(given, int) else given
    if not isinstance(listed, list | tuple) or not listed:
        raise UserError(f"devices.{name}.clients is {given!r}; it must be a client number or a list of them.")
    for client in listed:
        _check_whole(f"devices.{name}.clients", client, 0)
        if clients is not None and client >= clients:
            raise UserError(
                f"devices.{name}.clients names client {client}, but there are {clients} (0 to {clients - 1})."
            )
    return list(listed)


def _check_special(table: Table) -> None:
    for field in ("compute", "up", "down"):
        _check_number(f"devices.special.{field}", table.get(field, 1.0), 0.0, math.inf, open_bottom=True)
    for field in ("latency", "delay"):
        _check_number(f"devices.special.{field}", table.get(field, 0.0), 0.0, math.inf)
    _check_number("devices.special.availability", table.get("availability", 1.0), 0.0, 1.0)


def _check_number(
    name: str, value: object, low: float, high: float, *, open_bottom: bool = False, open_top: bool = False
) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        above = value > low if open_bottom else value >= low
        below = value < high if open_top else value <= high
        if above and below:
            return
    bottom = f"more than {low:g}" if open_bottom else f"at least {low:g}"
    top = "" if high == math.inf else f" and {'less than' if open_top else 'at most'} {high:g}"
    raise UserError(f"{name} is {value!r}; it must be a number of {bottom}{top}.")


def _check_whole(name: str, value: object, low: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or (low is not None and value < low):
        rule = "a whole number" if low is None else f"a whole number of at least {low}"
        raise UserError(f"{name} is {value!r}; it must be {rule}.")
