"""`metrics.jsonl`: the rows of an unfinished run, with the SHA-256 of all that was written."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from covey.core.ledger import Ledger
from covey.core.round import Measurement
from covey.data.types import Federation
from covey.files import append, cut, strict_json
from covey.folder.checksums import Piece
from covey.folder.rows import table_of

TOGETHER = 1 << 16  # rows that are Python's objects at the same time
JournalRow = tuple[int, float, int, int, int, str, str, float]


class Journal:
    """Appends rows, one JSON list per line, and knows what it wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = 0
        self._hash = hashlib.sha256()

    @property
    def piece(self) -> Piece:
        """All that was written so far."""
        return Piece(length=self._bytes, sha256=self._hash.hexdigest())

    def begin(self) -> None:
        """An empty journal."""
        append(self.path, b"")
        cut(self.path, 0)
        self._know(b"")

    def go_on(self, piece: Piece) -> None:
        """Takes the place where a checkpoint was written; what the journal holds beyond it never happened."""
        self._know(piece.read(self.path))
        cut(self.path, piece.length)

    def append(self, rows: Sequence[JournalRow]) -> None:
        lines = as_lines(rows)
        append(self.path, lines)
        self._bytes += len(lines)
        self._hash.update(lines)

    def sync(self) -> None:
        """The checkpoint must never be ahead of the journal, power cut or not."""
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())

    def table(self) -> pa.Table:
        """All rows; one sentence where the disk does not hold what was written."""
        lines = self.piece.read(self.path).splitlines()
        parts = (lines[k : k + TOGETHER] for k in range(0, max(1, len(lines)), TOGETHER))
        tables = [table_of(json.loads(b"[" + b",".join(part) + b"]")) for part in parts]
        return pa.concat_tables(tables).combine_chunks()

    def _know(self, content: bytes) -> None:
        self._bytes = len(content)
        self._hash = hashlib.sha256(content)


def as_lines(rows: Sequence[JournalRow]) -> bytes:
    """Rows as the journal holds them."""
    return "".join(strict_json(row, spaced=True) + "\n" for row in rows).encode()


def lines_of(table: pa.Table) -> bytes:
    """The journal that a finished run's table was made of."""
    return as_lines(list(zip(*(column.to_pylist() for column in table.columns), strict=True)))


DESCRIBED = 10_000  # clients whose data the journal describes


def data_rows(data: Federation, unlike: Mapping[str, float]) -> list[JournalRow]:
    """How heterogeneous the clients are, how many samples of each label each holds, and its true cluster where it is
    known.

    Of more than `DESCRIBED` clients, the first ones: no page shows more, and a million would be 150 MB.
    """
    data = replace(data, shares=data.shares[:DESCRIBED])
    rows: list[JournalRow] = [
        (-1, 0.0, 0, -1, -1, "data", name, float(value)) for name, value in unlike.items()
    ]
    for client, counts in enumerate(data.label_counts()):
        rows += [
            (-1, 0.0, 0, client, -1, "data", f"label:{data.dataset.classes[label]}", float(count))
            for label, count in enumerate(counts)
            if count
        ]
    rows += [
        (-1, 0.0, 0, client, -1, "data", "cluster", float(share.cluster))
        for client, share in enumerate(data.shares)
        if share.cluster >= 0
    ]
    return rows


def fleet_measurements(ledger: Ledger) -> list[Measurement]:
    """What the round cost, as measurements of the split "fleet"."""
    counts = {
        "selected": ledger.asked,
        "replied": ledger.replied,
        "lost": ledger.lost_in_round,
        "refused": ledger.refused_in_round,
    }
    found = [Measurement(split="fleet", metric=name, value=value) for name, value in counts.items()]
    for kind, cost in ledger.this_round.items():
        found += [
            Measurement(split="fleet", metric=f"{name}:{kind}", value=value)
            for name, value in vars(cost).items()
        ]
    for busy in ledger.busy:
        found.append(Measurement(split="fleet", metric="start", value=busy.start, client=busy.client))
        found.append(Measurement(split="fleet", metric="busy", value=busy.seconds, client=busy.client))
    return found
