"""What travels between the server and a client: tasks one way, replies the other."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

LOGGED = (
    "loss",
    "batches",
)  # statistics of every training, which only the log of the run uses
DEEPEST = 50  # lists and tables inside one another
WHOLE = (int, np.integer)
SIMPLE = (bool, int, float, str, np.ndarray, np.generic, Tensor, type(None))


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Server -> client: some rows of the bank and plain settings.

    Args:
        models: the rows.
        slots: which rows of the bank they are.
        args: plain settings.
        shared: leading columns that are the same in all rows, and charged once.
        held: positions of rows that the client already has, which are not charged.
        keep: whether the row that it makes stays at the client and is not charged; its statistics are.
        source: who sends the rows.
        columns: of the rows, those that travel, where the client's network is narrower than the others'; the rows are
            zero elsewhere. None: all.

    Examples:
        >>> covey.Task(args={"bins": 10}).args["bins"]
        10
    """

    models: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    slots: tuple[int, ...] = ()
    args: Mapping[str, Any] = field(default_factory=dict)
    shared: int = 0
    held: tuple[int, ...] = ()
    keep: bool = False
    source: Literal["server", "peers"] = "server"
    columns: Tensor | None = None

    @cached_property
    def rows(self) -> int:
        """Rows that have to travel to the client."""
        return len(self.models) - len(self.held)

    @cached_property
    def nbytes(self) -> int:
        """Bytes that have to travel to the client; worked out once for a task that many get."""
        rows = self.rows
        columns = self.models.shape[1] if self.models.dim() == 2 else 0
        columns = columns if self.columns is None else len(self.columns)
        floats = rows * (columns - self.shared) + (self.shared if rows else 0)
        return 4 * floats + plain_bytes(self.args)

    def as_sent(self) -> Self:
        """The task as the client gets it: with the columns that travel, and no others."""
        return (
            self if self.columns is None else replace(self, models=self.models[:, self.columns], columns=None)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Reply:
    """Client -> server: a row (or none), the row it started from, how many samples it was made from, statistics.

    Args:
        id: of the client.
        vector: the row; none where only statistics are told.
        slot: the row of the bank that it started from.
        size: how many samples it was made from.
        stats: plain numbers and arrays.

    Examples:
        >>> covey.Reply(id=3, stats={"loss": 0.5}).stats["loss"]
        0.5
    """

    id: int
    vector: Tensor | None = None
    slot: int = 0
    size: int = 0
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole reply."""
        return (4 * self.vector.numel() if self.vector is not None else 0) + plain_bytes(self.stats)

    def sent(self, task: Task) -> int:
        """Bytes that have to travel to the server; where the row stays, the statistics without the log of training."""
        if not task.keep:
            return self.nbytes
        return plain_bytes({name: value for name, value in self.stats.items() if name not in LOGGED})


def plain_bytes(value: Any) -> int:
    """Size of plain values on the wire: arrays as they are, 8 bytes per number, text in UTF-8."""
    if isinstance(value, int | float):
        return 8
    if isinstance(value, Mapping):
        return sum(map(plain_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(plain_bytes, value))
    if isinstance(value, np.ndarray | Tensor):
        return int(value.nbytes)
    if isinstance(value, str):
        return len(value.encode())
    return 0 if value is None else 8


def wrong_type(reply: Any) -> str:
    """Which part of a reply is of another type than it must be, in words; an empty string where none is."""
    if not isinstance(reply, Reply):
        return f"it is a {type(reply).__name__}, not a Reply"
    for name in ("id", "slot", "size"):
        if not is_whole(value := getattr(reply, name)):
            return f"its {name} is not a whole number of 64 bits but {_seen(value)}"
    if reply.vector is not None and not isinstance(reply.vector, Tensor):
        return f"its row (vector) is not a tensor but {_seen(reply.vector)}"
    if not isinstance(reply.stats, Mapping) or not all(isinstance(name, str) for name in reply.stats):
        return "its statistics (stats) have no names"
    for name, value in reply.stats.items():
        if isinstance(value, WHOLE) and not (isinstance(value, bool) or is_whole(value)):
            return f"its {name} is not a whole number of 64 bits"
        if not is_plain(value):
            return f"its {name} is neither an array nor a plain value but {_seen(value)}"
    return ""


def is_whole(value: Any) -> bool:
    """A whole number that fits into 64 bits, and not True or False."""
    return isinstance(value, WHOLE) and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether a value can be kept or sent: arrays, numbers, texts, and lists and tables of them."""
    if isinstance(value, SIMPLE):
        return True
    if depth > DEEPEST or not isinstance(value, list | tuple | Mapping):
        return False
    parts = value.values() if isinstance(value, Mapping) else value
    return all(is_plain(part, depth + 1) for part in parts)


def _seen(value: Any) -> str:
    if isinstance(value, int):
        return "a larger one" if not isinstance(value, bool) else str(value)
    return "None" if value is None else f"a {type(value).__name__}"
