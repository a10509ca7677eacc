"""Anything with columns as an Arrow table: CSV and Parquet files, Excel sheets, databases, data frames, rows."""

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from covey.data.cells import has_thousands, is_text_column, uses_commas, with_points
from covey.data.schema import DecimalPoint
from covey.errors import UserError, importing, user_error
from covey.files import arrows_own, open_regular

PIECE = 1 << 20  # bytes of a file that are looked at together
FALLBACK = "cp1252"  # what spreadsheets in Western Europe write
EXCEL = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
SQLITE = (".db", ".sqlite", ".sqlite3")
ADDRESS = re.compile(r"^[a-z][a-z0-9+]*://?", re.I)  # of a database; a path has taken one of two strokes away


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a file is read, where it does not say so itself.

    encoding: of a CSV file; "" finds UTF-8, UTF-16 with its mark, or else cp1252.
    delimiter: of a CSV file; "" takes what its first line has most of: tab, semicolon, comma or bar.
    decimal_point: of numbers; auto finds commas where they can be nothing else.
    sheet: of an Excel file; "" is the first.
    query: for a database; without one it must hold one table.
    """

    encoding: str = ""
    delimiter: str = ""
    decimal_point: DecimalPoint = "auto"
    sheet: str = ""
    query: str = ""


class Opened(NamedTuple):
    """A table, and what was decided on the way, in a sentence each."""

    table: pa.Table
    notes: tuple[str, ...] = ()


def open_table(source: Any, reading: Reading | None = None) -> Opened:
    """The table, from whatever has columns or rows."""
    reading = reading or Reading()
    if isinstance(source, str | Path):
        opened = _from_file(source, reading)
    else:
        opened = Opened(_from_memory(source))
    names = opened.table.column_names
    if len(set(names)) < len(names):
        counts: dict[str, int] = {}
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        twice = next(name for name in names if counts[name] > 1)
        raise UserError(f"the table has {counts[twice]} columns called {twice!r}")
    return opened


def is_table(source: Any) -> bool:
    """Whether `open_table` takes it, without reading it."""
    if isinstance(source, str | Path):
        return not Path(source).is_dir()
    rows = isinstance(source, list | tuple) and len(source) > 0 and isinstance(source[0], Mapping)
    return rows or isinstance(source, Mapping) or hasattr(source, "__arrow_c_stream__") or _arrow_in(source)


def _arrow_in(source: Any) -> bool:
    return isinstance(getattr(getattr(source, "data", None), "table", None), pa.Table)  # datasets.Dataset


def _from_memory(source: Any) -> pa.Table:
    with user_error("the rows cannot be read as a table"):
        if isinstance(source, pa.Table):
            return source
        if isinstance(source, Mapping):
            return _of_columns({str(name): _cells(values) for name, values in source.items()})
        if isinstance(source, list | tuple) and source and all(isinstance(row, Mapping) for row in source):
            names = dict.fromkeys(name for row in source for name in row)
            return _of_columns({str(name): [row.get(name) for row in source] for name in names})
        if _arrow_in(source):
            return source.with_format("arrow")[:]
        if hasattr(source, "__arrow_c_stream__"):  # pandas, polars, duckdb
            return pa.table(source)
    raise UserError(
        f"a table was given as {type(source).__name__}; allowed: a CSV, Parquet or Excel file, a data frame, an Arrow "
        "table, a dict of columns, a list of dicts"
    )


def _of_columns(columns: Mapping[str, Any]) -> pa.Table:
    made = {}
    for name, cells in columns.items():
        with user_error(f"the column {name!r} cannot be read"):
            made[name] = cells if isinstance(cells, pa.ChunkedArray) else pa.array(cells)
    return pa.table(made)


def _cells(values: Any) -> Any:
    """A column of a dict; a single value is a column of one row."""
    single = isinstance(values, str | bytes) or not hasattr(values, "__len__")
    if single:
        return [values]
    return values if isinstance(values, list | pa.Array | pa.ChunkedArray) else _plain(values)


def _plain(values: Any) -> Any:
    return values if hasattr(values, "dtype") and getattr(values, "ndim", 1) == 1 else list(values)


def _from_file(source: str | Path, reading: Reading) -> Opened:
    path, ending = Path(source), Path(source).suffix.lower()
    if ADDRESS.match(str(source)) or ending in SQLITE:
        return Opened(_from_database(str(source), reading.query))
    if not path.exists():
        raise UserError(f"{path} does not exist")
    with user_error(f"{path} cannot be read as a table"):
        if not path.is_dir():  # of parquet files it may be one
            open_regular(path).close()  # a pipe or a device has no end
        if ending in (".parquet", ".pq"):
            import pyarrow.parquet

            found = pyarrow.parquet.read_table(path)
            # Texts and names that are no UTF-8 would be noticed only when they are used.
            found.validate(full=True)
            _ = found.column_names
            return Opened(found)
        if ending in EXCEL:
            return Opened(_from_excel(path, reading.sheet))
        return _from_csv(path, reading)


# ---------------------------------------------------------------------------------------------- CSV


def _from_csv(path: Path, reading: Reading) -> Opened:
    notes = []
    encoding = reading.encoding or _encoding_of(path)
    if encoding == FALLBACK and not reading.encoding:
        notes.append(
            f"{path.name} is not UTF-8: it is read as {FALLBACK}; if letters look wrong, save it as UTF-8 or say "
            'encoding = "..."'
        )
    delimiter = reading.delimiter or _delimiter_of(path, encoding)
    if reading.decimal_point != "auto":
        table = _csv(path, encoding, delimiter, reading.decimal_point)
        return Opened(_without_thousands(table, reading.decimal_point), tuple(notes))
    table = _csv(path, encoding, delimiter, ".")
    for name, column in zip(table.column_names, table.columns, strict=True):
        if is_text_column(column.type) and uses_commas(column.drop_null(), name):
            notes.append(f"{path.name} has decimal commas (first in the column {name!r})")
            points = [
                other
                for other, cells in zip(table.column_names, table.columns, strict=True)
                if pa.types.is_floating(cells.type)
            ]
            if points:
                raise UserError(
                    f"{path} has decimal commas in the column {name!r} and points in {points[0]!r}: say which is the "
                    "decimal_point; the other is then for thousands"
                )
            return Opened(_csv(path, encoding, delimiter, ","), tuple(notes))
    return Opened(table, tuple(notes))


def _without_thousands(table: pa.Table, decimal_point: str) -> pa.Table:
    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if is_text_column(column.type) and has_thousands(column.drop_null(), decimal_point):
            table = table.set_column(place, name, with_points(column, decimal_point).cast(pa.float64()))
    return table


def _csv(path: Path, encoding: str, delimiter: str, decimal_point: str) -> pa.Table:
    import pyarrow.csv

    if len(delimiter) != 1:
        raise UserError(f"delimiter is {delimiter!r}; allowed: one character")
    source: Path | pa.BufferReader = path
    if not encoding.startswith("utf-8"):  # Arrow would have Python decode it, in threads of Arrow's
        with pa.input_stream(str(path)) as file:
            source = arrows_own(
                codecs.iterencode(codecs.iterdecode(iter(lambda: file.read(PIECE), b""), encoding), "utf-8")
            )
    return pyarrow.csv.read_csv(
        source,
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
        convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True, decimal_point=decimal_point),
    )


def _encoding_of(path: Path) -> str:
    """UTF-8 if all of it is, UTF-16 if it says so, or else one that can read most bytes."""
    with pa.input_stream(str(path)) as file:
        piece = file.read(PIECE)
        if piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            while piece:
                decoder.decode(piece)
                piece = file.read(PIECE)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return FALLBACK
    return "utf-8-sig"


def _delimiter_of(path: Path, encoding: str) -> str:
    with pa.input_stream(str(path)) as file:
        text = codecs.getincrementaldecoder(encoding)().decode(file.read(PIECE))
    head = text.splitlines()[0] if text else ""
    bare = re.sub(r'"[^"]*"', "", head)  # a name in quotes may hold any of them
    return max("\t;,|", key=bare.count)


# ---------------------------------------------------------------------------------------------- others


def _from_excel(path: Path, sheet: str) -> pa.Table:
    with importing("Excel files need the package python-calamine: install covey[excel]"):
        import python_calamine as calamine
    with user_error(f"{path} cannot be read as an Excel file"):
        book = calamine.CalamineWorkbook.from_path(str(path))
        if sheet and sheet not in book.sheet_names:
            raise UserError(f"{path} has no sheet {sheet!r}; its sheets are {', '.join(book.sheet_names)}")
        rows = book.get_sheet_by_name(sheet or book.sheet_names[0]).to_python()
    return _of_rows(str(path), [str(name) for name in rows[0]] if rows else [], rows[1:])


def _from_database(source: str, query: str) -> pa.Table:
    with importing("databases need the package sqlalchemy: install covey[sql]"):
        import sqlalchemy
    if ADDRESS.match(source):
        address = re.sub(r"^([a-z][a-z0-9+]*):/(?!/)", r"\1://", source, flags=re.I)
    elif Path(source).exists():
        address = f"sqlite:///{source}"
    else:
        raise UserError(f"{source} does not exist")
    with user_error(f"{source} cannot be read by a query"):
        url = sqlalchemy.make_url(address)
        if url.password:
            raise UserError(
                f"the address of the database ({url!r}) has a password, which would be stored with the run: use the "
                "database's own means, such as PGPASSWORD or ~/.pgpass"
            )
        engine = sqlalchemy.create_engine(url)
        try:
            with engine.connect() as connection:
                if not query:
                    tables = sqlalchemy.inspect(engine).get_table_names()
                    if len(tables) != 1:
                        raise UserError(
                            f"{source} has {len(tables)} tables ({', '.join(tables[:8])}); say query = "
                            '"select ... from ..."'
                        )
                    query = f"select * from {engine.dialect.identifier_preparer.quote(tables[0])}"
                result = connection.execute(sqlalchemy.text(query))
                return _of_rows(source, list(result.keys()), [tuple(row) for row in result])
        finally:
            engine.dispose()


def _of_rows(source: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Cells of any kind as columns; where a column mixes texts and others, all are texts."""
    if not names:
        raise UserError(f"{source} holds no rows")
    columns = [[None if row[place] == "" else row[place] for row in rows] for place in range(len(names))]
    made = []
    for cells in columns:
        try:
            made.append(pa.array(cells))
        except (pa.ArrowException, TypeError, OverflowError):
            made.append(pa.array([None if cell is None else str(cell) for cell in cells]))
    return pa.Table.from_arrays(made, names=list(names))
