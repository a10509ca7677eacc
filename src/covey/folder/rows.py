"""The measurements of a run as columns: `metrics.parquet`, or the journal of an unfinished run."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from covey.errors import UserError
from covey.files import arrows_own, read_whole
from covey.folder.checksums import Piece

SCHEMA = pa.schema(
    [
        ("round", pa.int32()),
        ("seconds", pa.float64()),
        ("bytes", pa.int64()),
        ("client", pa.int32()),
        ("group", pa.int32()),
        ("split", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
    ]
)
TEXTS = ["split", "metric"]
CODED = pa.dictionary(pa.int32(), pa.string())
# as read
STORED = pa.schema([(field.name, CODED if field.name in TEXTS else field.type) for field in SCHEMA])
NUMBER = int | float | None  # JSON's null stands for a value that is not finite
KINDS = (int, int | float, int, int, int, str, str, NUMBER)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Measurements; row i measured `names[name[i]]` ("split/metric") as `value[i]`; -1 stands for all."""

    round: NDArray[np.int32]
    seconds: NDArray[np.float64]
    bytes: NDArray[np.int64]
    client: NDArray[np.int32]
    group: NDArray[np.int32]
    name: NDArray[np.int32]
    value: NDArray[np.float64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.value)

    def take(self, chosen: NDArray[Any]) -> "Rows":
        """The rows of a mask or of an order."""
        columns = {f.name: getattr(self, f.name)[chosen] for f in fields(self) if f.name != "names"}
        return Rows(**columns, names=self.names)

    def of(self, name: str) -> "Rows":
        """The rows of one "split/metric", in the order of rounds."""
        if name not in self.names:
            return self.take(np.zeros(0, dtype=np.intp))
        found = self.take(np.flatnonzero(self.name == self.names.index(name)))
        return found.take(np.argsort(found.round, kind="stable"))

    def overall(self, name: str) -> "Rows":
        """The rows of one "split/metric" over all clients and all groups."""
        found = self.of(name)
        return found.take((found.client == -1) & (found.group == -1))

    def by_group(self, name: str) -> dict[int, "Rows"]:
        """The rows of one "split/metric" over the clients of each group."""
        found = self.of(name)
        found = found.take((found.client == -1) & (found.group != -1))
        order = np.argsort(found.group, kind="stable")  # once, however many groups there are
        groups, starts = np.unique(found.group[order], return_index=True)
        parts = np.split(order, starts[1:])
        return {int(group): found.take(part) for group, part in zip(groups, parts, strict=False)}

    def by_client(self, name: str) -> "Rows":
        """The rows of one "split/metric" that belong to single clients."""
        found = self.of(name)
        return found.take(found.client != -1)

    def last_round(self) -> int:
        """The last round with any measurement; 0 when there is none."""
        return int(self.round.max(initial=0))


def rows_from(table: pa.Table) -> Rows:
    """Columns as arrays; the two name columns become one code into `names`."""
    split, metric = (_coded(table.column(c).combine_chunks()) for c in ("split", "metric"))
    pairs = _array(split.indices).astype(np.int64) * max(len(metric.dictionary), 1) + _array(metric.indices)
    codes, name = np.unique(pairs, return_inverse=True)
    splits, metrics = split.dictionary.to_pylist(), metric.dictionary.to_pylist()
    names = tuple(f"{splits[code // len(metrics)]}/{metrics[code % len(metrics)]}" for code in codes)
    columns = {c: _array(table.column(c)) for c in ("round", "seconds", "bytes", "client", "group", "value")}
    return Rows(**columns, name=name.astype(np.int32), names=names)


def read_parquet(path: Path) -> Rows:
    """The measurements of a finished run."""
    try:
        # Arrow itself takes no path that is not UTF-8
        table = pq.ParquetFile(arrows_own([read_whole(path, 2**40)]), read_dictionary=TEXTS).read()
        table.validate(full=True)
        missing = [name for name in SCHEMA.names if name not in table.column_names]
        if missing:
            raise UserError(f"{path} is damaged: the column {missing[0]!r} is missing.")
        table = table.select(SCHEMA.names)
        if table.schema.remove_metadata() != STORED:
            table = table.cast(SCHEMA)
        if any(table.column(name).null_count for name in SCHEMA.names):
            raise UserError(f"{path} is damaged: it holds empty cells.")
        return rows_from(table)
    except (pa.ArrowException, OSError, ValueError) as problem:  # ValueError: a name that is no text
        raise UserError(f"{path} is damaged: it cannot be read as the table of a run.") from problem


def read_journal(path: Path, piece: Piece | None = None) -> Rows:
    """The measurements of an unfinished run, or of a piece of its journal: one JSON list per line.

    A last line cut short is left out. A round that was measured again after a restart replaces what the journal
    held of it.
    """
    lines = (read_whole(path, 2**40) if piece is None else piece.read(path)).split(b"\n")
    records: dict[tuple[object, ...], list[Any]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = parse_line(line)
        if record is None:
            if number == len(lines):
                break
            raise UserError(f"{path} is damaged: line {number} is not a list of {len(SCHEMA.names)} values.")
        records[(record[0], *record[3:7])] = record
    try:
        return rows_from(table_of(records.values()))
    except (pa.ArrowException, OverflowError) as problem:
        raise UserError(f"{path} is damaged: it holds numbers beyond the range of their column.") from problem


def parse_line(line: bytes) -> list[Any] | None:
    """One journal line, or None when it is not one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, list) or len(record) != len(KINDS):
        return None
    return record if all(isinstance(v, kind) for v, kind in zip(record, KINDS, strict=True)) else None


def table_of(records: Iterable[Sequence[Any]]) -> pa.Table:
    """Records in the order of the columns as a table of the run folder's schema."""
    columns = list(zip(*records, strict=True)) or [()] * len(SCHEMA.names)
    *others, last = columns
    values = [math.nan if value is None else value for value in last]
    arrays = [
        _texts(column) if pa.types.is_string(kind) else _numbers(column, kind)
        for column, kind in zip((*others, values), SCHEMA.types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


# Arrow's own ways between Python and its arrays import pandas where that is installed, and its functions import all of
# them, which takes longer than whatever is done with a table here. So columns are made of, and read from, their bytes.


def _numpy_kind(kind: pa.DataType) -> np.dtype[Any]:
    """Not by `to_pandas_dtype`: Arrow before version 26 needs pandas for it, which is not required here."""
    return np.dtype("float64" if pa.types.is_float64(kind) else str(kind))


def _numbers(column: Sequence[Any], kind: pa.DataType) -> pa.Array:
    values = np.array(column, dtype=_numpy_kind(kind))
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _texts(column: Sequence[str]) -> pa.Array:
    encoded = [text.encode() for text in column]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def _coded(column: pa.Array) -> pa.DictionaryArray:
    return column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()


def _array(column: pa.ChunkedArray | pa.Array) -> NDArray[Any]:
    """A column of numbers without gaps as NumPy has it."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = _numpy_kind(whole.type)
    return np.frombuffer(whole.buffers()[1], kind, len(whole), whole.offset * kind.itemsize)
