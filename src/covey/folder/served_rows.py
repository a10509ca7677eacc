"""`served.safetensors`: which row every client uses at a run's end, equal rows stored once.

A row that is in the bank as well is only named, as the checkpoint has it. Above `KEPT_BYTES` of other rows none of them
is stored: slots, shares and digests stay, by which they can be made again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from covey.core import Method, State, Task
from covey.errors import user_error
from covey.folder.checkpoint import long_ids, short_ids
from covey.parts.steps.served import Serving, leaves_all_as_sent, share_of
from covey.training.rows import Layout

KEPT_BYTES = 500_000_000  # of rows that are not in the bank
FORMAT = 1
ARRAYS = ("slots", "row_of", "share", "digests", "bank")
NOWHERE = -1  # the row of a client that made none, or has it at its own site alone


def digest(row: Tensor) -> bytes:
    """Equal for equal rows."""
    return hashlib.sha256(np.ascontiguousarray(row.numpy()).data).digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class ServedRows:
    """Which row each client uses: of client `clients[i]`, the row number `row_of[i]` of all that differ.

    Row k has the SHA-256 `digests[k]`; it is row `bank[k]` of the bank, or where that is -1 one of `rows`, in order.
    `share[i]` is the share of a client's own training before use. `facts` say how rows are made of what is sent.
    """

    round: int
    clients: Sequence[int]
    slots: np.ndarray
    row_of: np.ndarray
    share: np.ndarray
    digests: np.ndarray
    bank: np.ndarray
    rows: Tensor | None  # None: more than are stored
    facts: Mapping[str, Any]

    def place(self, client: int) -> int:
        """Where a client stands among the others."""
        return self.clients.index(client)

    def is_known(self, client: int) -> bool:
        """Whether there is a row that the client uses, stored or not."""
        return int(self.row_of[self.place(client)]) != NOWHERE

    def digest_of(self, client: int) -> bytes:
        """The SHA-256 of the row that the client uses."""
        return bytes(self.digests[self.row_of[self.place(client)]])

    def row(self, client: int, bank: Tensor) -> Tensor | None:
        """The row that the client uses; None where it is not stored."""
        number = int(self.row_of[self.place(client)])
        if number == NOWHERE:
            return None
        if self.bank[number] >= 0:
            return bank[int(self.bank[number])]
        return None if self.rows is None else self.rows[int((self.bank[:number] < 0).sum())]

    @property
    def distinct(self) -> dict[int, list[int]]:
        """The clients that use each of the rows, by its number."""
        found: dict[int, list[int]] = {}
        for client, number in zip(self.clients, self.row_of.tolist(), strict=True):
            found.setdefault(number, []).append(client)
        found.pop(NOWHERE, None)
        return found

    def to_bytes(self) -> bytes:
        """The file."""
        known = short_ids(self.clients)
        plain = {
            "format": FORMAT,
            "round": self.round,
            "clients": known if isinstance(known, int) else None,
            "rows": self.rows is not None,
            **self.facts,
        }
        arrays = {name: torch.from_numpy(getattr(self, name)) for name in ARRAYS}
        if not isinstance(known, int):
            arrays["clients"] = torch.from_numpy(known)
        if self.rows is not None:
            arrays["rows"] = self.rows.contiguous()
        return safetensors.torch.save(arrays, {"covey": json.dumps(plain)})

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """What `to_bytes` wrote; a `UserError` for anything else."""
        with user_error("it does not hold the rows that clients use"):
            length = int.from_bytes(content[:8], "little")
            plain = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["covey"])
            arrays = safetensors.torch.load(content)
            if plain.pop("format") != FORMAT:
                raise ValueError("it has another format")
            clients, stored = plain.pop("clients"), plain.pop("rows")
            return cls(
                round=int(plain.pop("round")),
                clients=long_ids(clients if clients is not None else arrays["clients"].numpy()),
                rows=arrays["rows"] if stored else None,
                facts=plain,
                **{name: arrays[name].numpy() for name in ARRAYS},
            )


def facts_of(method: Method, layout: Layout) -> dict[str, Any]:
    """How the clients of a method come by the rows that they use, in plain values."""
    serving = Serving.of(method)
    return {
        "method": method.name,
        "own": serving.own,
        "adapted": serving.adapt is not None,
        "as_sent": leaves_all_as_sent(method, layout),
    }


def gathered(
    used: Iterable[tuple[int, int, Tensor]],
    state: State,
    tasks: Mapping[int, Task],
    serving: Serving,
    facts: Mapping[str, Any],
) -> ServedRows:
    """The rows as they are stored, of a client, a slot and a row each: equal ones once, those of the bank by their
    number."""
    places = {client: place for place, client in enumerate(state.seen)}
    slots = np.full(len(places), NOWHERE, np.int32)
    row_of = np.full(len(places), NOWHERE, np.int32)
    share = np.zeros(len(places), np.float32)
    numbers: dict[bytes, int] = {}
    marks: dict[int, bytes] = {}  # of rows in memory that many clients share
    bank: list[int] = []
    width = state.models.shape[1]
    most = KEPT_BYTES // max(1, 4 * width)
    rows: Tensor | None = torch.empty(min(most, len(places)), width)  # a tensor for each would double it
    count = 0
    in_bank = {digest(row): number for number, row in reversed(list(enumerate(state.models)))}
    for client, slot, row in used:
        mark = marks.get(row.data_ptr()) or digest(row)
        if client in tasks and row.data_ptr() == tasks[client].models.data_ptr():
            marks[row.data_ptr()] = mark  # the tasks hold it, so that no other row can take its address
        if mark not in numbers:
            numbers[mark] = len(numbers)
            bank.append(in_bank.get(mark, NOWHERE))
            if bank[-1] == NOWHERE:
                rows = rows if rows is not None and count < len(rows) else None
                if rows is not None:
                    rows[count] = row
                    count += 1
        place = places[client]
        slots[place], row_of[place] = slot, numbers[mark]
        share[place] = share_of(tasks[client], serving)
    return ServedRows(
        round=state.round,
        clients=state.seen,
        slots=slots,
        row_of=row_of,
        share=share,
        digests=np.frombuffer(b"".join(numbers), np.uint8).reshape(len(numbers), 32).copy(),
        bank=np.array(bank, np.int32),
        rows=None if rows is None else rows[:count],
        facts=facts,
    )
