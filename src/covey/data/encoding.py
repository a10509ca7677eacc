"""Rows of a table as a model's inputs, by a schema: the same in training and for new rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from covey.arrays import Array
from covey.data.cells import date_parts, dates_of, numbers_of, some, tidied, words_of
from covey.data.ranks import ranks
from covey.data.schema import NO_CATEGORY, Column, Schema
from covey.data.table_files import Reading, open_table
from covey.errors import UserError, warn_caller

DEVIATIONS = 10  # from the mean, beyond which a number of new rows is probably in another unit


def encode(schema: Schema, source: Any) -> torch.Tensor:
    """The inputs of all rows, not yet scaled; a warning for each thing that was decided, or that looks wrong."""
    columns = columns_of(schema, open_rows(schema, source))
    made = assembled(schema, columns)
    for note in (*filled(schema, columns), *far_outside(schema, columns)):
        warn_caller(note)
    return torch.from_numpy(made.astype(np.float32))


def open_rows(schema: Schema, source: Any) -> pa.Table:
    """New rows as a table, read as the schema says; a warning for each thing that was decided."""
    opened = open_table(source, Reading(decimal_point=schema.decimal_point))
    for note in opened.notes:
        warn_caller(note)
    return opened.table


def filled(schema: Schema, columns: Sequence[NDArray[Any]]) -> list[str]:
    """A sentence where there are empty cells."""
    gaps: dict[str, int] = {}  # the parts of a date are one cell
    for column, values in zip(schema.columns, columns, strict=True):
        empty = values < 0 if column.kind == "category" else np.isnan(values)
        if empty.any():
            gaps[column.name] = int(empty.sum())
    if not gaps:
        return []
    return [f"{sum(gaps.values()):,} empty cells in {some(list(gaps))} are filled as in training"]


def far_outside(schema: Schema, columns: Sequence[NDArray[Any]]) -> list[str]:
    """A sentence for each column with a number that is further from the training rows' range than it is wide.

    Where the range is unknown, as for older models of real sites, the bound is ten deviations from the mean.
    """
    found = []
    for column, values in zip(schema.columns, columns, strict=True):
        if column.kind != "number":
            continue
        if column.reach is not None:
            least, most = column.reach
            known = f"ran from {column.low:g} to {column.high:g}"
        elif column.mean is not None and column.std is not None:
            least, most = column.mean - DEVIATIONS * column.std, column.mean + DEVIATIONS * column.std
            known = f"was {column.mean:g} on average with a deviation of {column.std:g}"
        else:
            continue
        odd = (values < least) | (values > most)
        if odd.any():
            row = int(odd.argmax())
            found.append(
                f"the column {column.name!r} holds {values[row]:g} in row {row + 1}; in training it {known}: is it the "
                f"same unit? ({odd.sum():,} of {len(odd):,} rows)"
            )
    return found


def columns_of(schema: Schema, source: Any) -> list[NDArray[Any]]:
    """What each column holds: numbers, with NaN for an empty cell, or places among the categories, with -1 for one."""
    table = open_table(source, Reading(decimal_point=schema.decimal_point)).table
    names = set(table.column_names)
    absent = list(dict.fromkeys(c.name for c in schema.columns if c.name not in names))
    if absent:
        more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
        raise UserError(f"the rows have no column {absent[0]!r}{more}; they have {some(table.column_names)}")
    found: list[NDArray[Any]] = []
    for column in schema.columns:
        cells = tidied(table[column.name], schema.na_values)
        if column.kind == "category":
            found.append(_places(cells, column))
        elif column.kind == "number":
            found.append(numbers_of(cells, column.name))
        else:
            found.append(date_parts(dates_of(cells, column.name, column.written), column.kind))
    return found


def assembled(schema: Schema, columns: Sequence[NDArray[Any]], *, hint: str = "", raw: bool = False) -> Array:
    """Inputs side by side, with empty cells filled; refused where a column has no fill value, unless `raw`."""
    made = np.zeros((len(columns[0]), len(schema.inputs)))
    at = 0
    for column, values in zip(schema.columns, columns, strict=True):
        empty = values < 0 if column.kind == "category" else np.isnan(values)
        gaps = bool(empty.any())
        if gaps and column.fill is None and not raw:
            raise UserError(
                f"the column {column.name!r} has {empty.sum()} empty cells (first in row {empty.argmax() + 1})"
                + (hint or "; in training it had none, so fill them")
            )
        if column.kind == "category":
            if gaps and column.fill not in (None, NO_CATEGORY):
                values = np.where(empty, column.categories.index(str(column.fill)), values)
            known = np.flatnonzero(values >= 0)
            made[known, at + values[known]] = 1.0
        else:
            there = np.where(empty, column.fill, values) if gaps and column.fill is not None else values
            made[:, at] = ranks(column.quantiles, there) if column.quantiles else there
        at += len(column.inputs)
        if column.indicator:
            made[:, at - 1] = empty
    return made


def _places(cells: pa.ChunkedArray, column: Column) -> NDArray[np.int64]:
    if pa.types.is_null(cells.type):
        return np.full(len(cells), -1)
    words = words_of(cells, column.name)
    if column.hashed:
        return _hashed(words, column)
    places = pc.index_in(words, value_set=pa.array(column.categories, type=words.type))
    found: NDArray[np.int64] = np.asarray(pc.fill_null(places, -1).to_numpy(), dtype=np.int64)
    odd = (found < 0) & np.asarray(pc.is_valid(words).to_numpy(), dtype=bool)
    if odd.any():
        row = int(odd.argmax())
        raise UserError(
            f"the column {column.name!r} holds {words[row].as_py()!r} in row {row + 1}, which was not there in "
            f"training; allowed: {some(column.categories, 12)}"
            + ("" if column.fill is None else ", or an empty cell, which counts as missing")
        )
    return found


def _hashed(words: pa.ChunkedArray, column: Column) -> NDArray[np.int64]:
    """The bucket of every cell's text, -1 for an empty cell."""
    texts = words.to_pylist()
    place = {
        text: column.categories.index(column.category_of(text)) for text in set(texts) if text is not None
    }
    return np.array([place.get(text, -1) for text in texts], dtype=np.int64)
