"""A data set from a table: a CSV or Parquet file, a data frame, or a Hugging Face data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from covey.data.convert import stratified_split, with_everybody
from covey.data.types import Dataset, Indices, Scale
from covey.data.usual import Usual, declare
from covey.errors import UserError
from covey.ranges import Part
from covey.settings import validated, validated_in

Floats = NDArray[np.float64]
Task = Literal["auto", "classification", "regression"]
Missing = Literal["refuse", "mean"]
MOST_CATEGORIES = 64  # texts in one column that become inputs of their own


@validated
def read_table(
    source: Any,
    *,
    label: str,
    client: str | None = None,
    features: Sequence[str] = (),
    test: Any = None,
    split: str | None = None,
    test_share: Part = 0.2,
    task: Task = "auto",
    missing: Missing = "refuse",
    standardise: bool = True,
    name: str = "",
    seed: int = 0,
) -> Dataset:
    """A data set from the rows of a table: a CSV or Parquet file, a pandas or polars frame, a `datasets.Dataset`.

    label: the column to predict; texts, truth values and whole numbers are classes, other numbers targets of a
    regression (or as `task` says). client: the column that says whose row it is; its values become the natural
    grouping of that name, and `federate(..., partition="natural")` makes each a client. features: the input columns
    (none: all others); a column of texts becomes one input per text. test: another table with the same columns; or
    split: a column that says `test` for test rows; or else test_share of the rows, by client and label, drawn with
    `seed`. missing: what becomes of empty cells: `refuse`, or the training rows' `mean`. standardise: inputs are
    shifted and scaled by mean and standard deviation of the training rows.
    """
    tables = [_open(source)] if test is None else [_open(source), _open(test)]
    whole = _joined(tables)
    called = name or (Path(source).stem if isinstance(source, str | Path) else "table")
    for column in (label, client, split, *features):
        if column is not None and column not in whole.column_names:
            raise UserError(
                f"{called} has no column {column!r}; its columns are {', '.join(whole.column_names)}"
            )
    inputs = tuple(features) or tuple(c for c in whole.column_names if c not in (label, client, split))
    if label in inputs:
        raise UserError(f"{called}: {label!r} is the label, so it cannot be among the features")
    if not inputs:
        raise UserError(f"{called} has no column left for the features")
    y, classes = _labels(whole[label], label, task)
    ids, names = _groups(whole[client], client) if client is not None else (None, ())
    train, held = _split(whole, len(tables[0]), test is not None, split, test_share, y, ids, classes, seed)
    columns = [_inputs(whole[column], column, missing) for column in inputs]
    x = np.concatenate([column.values for column in columns], axis=1)
    numeric = np.array([not column.texts for column in columns for _ in column.features])
    scale = _scale(x[train], numeric) if standardise else None
    x = np.where(np.isnan(x), np.nan_to_num(np.nanmean(x[train], axis=0)), x)
    return Dataset(
        name=called,
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.from_numpy(y),
        train=train,
        test=held,
        classes=classes,
        scale=scale,
        natural={client: ids} if client is not None and ids is not None else {},
        group_names={client: names} if client is not None else {},
        clients_by=client or "",
        features=tuple(feature for column in columns for feature in column.features),
    )


@validated_in("data")
def table(
    *,
    path: Path,
    label: str,
    client: str | None = None,
    features: tuple[str, ...] = (),
    test: Path | None = None,
    split: str | None = None,
    test_share: Part = 0.2,
    task: Task = "auto",
    missing: Missing = "refuse",
    standardise: bool = True,
) -> Dataset:
    """A CSV or Parquet file of your own: one row per sample, a column to predict, a column that says whose row it is.

    Args:
        path: the file.
        label: the column to predict.
        client: the column that says whose row it is; each value is then a client.
        features: the input columns; all others by default.
        test: a second file, of test rows.
        split: a column that says test for test rows.
        test_share: of the rows that are test rows otherwise.
        task: auto takes texts and whole numbers as classes.
        missing: refuse empty cells, or fill them with the mean.
        standardise: whether the inputs are scaled to mean 0 and deviation 1.
    """
    return read_table(
        path,
        label=label,
        client=client,
        features=features,
        test=test,
        split=split,
        test_share=test_share,
        task=task,
        missing=missing,
        standardise=standardise,
    )


def _usual(*, path: Path, client: str | None = None, **_: Any) -> Usual:
    """What a configuration means when it says nothing of clients: each value of the client column is one."""
    if client is None:
        return Usual()
    whole = _joined([_open(path)])
    if client not in whole.column_names:
        raise UserError(
            f"data.client is {client!r}; the columns of {path} are {', '.join(whole.column_names)}"
        )
    return Usual(partition="natural", clients=pc.count_distinct(whole[client]).as_py())


def _data_files(*, path: Path, test: Path | None = None, **_: Any) -> list[Path]:
    """What the run folder keeps the hash of."""
    return [Path(path), *([Path(test)] if test is not None else [])]


declare(table, usual=_usual, files=_data_files)


def encode(source: Any, features: Sequence[str]) -> torch.Tensor:
    """The inputs of new rows, as the named features of a data set that `read_table` made."""
    rows = _open(source)
    columns = []
    for feature in features:
        column, _, text = feature.rpartition("=")
        if feature in rows.column_names:
            columns.append(_numbers(rows[feature], feature))
        elif column in rows.column_names:
            texts = rows[column].cast(pa.string()).to_pylist()
            columns.append(np.array([float(value == text) for value in texts]))
        else:
            raise UserError(f"the rows have no column for the input {feature!r}")
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.float32))


# ---------------------------------------------------------------------------------------------- reading


def _open(source: Any) -> pa.Table:
    """Anything with columns as an Arrow table."""
    if isinstance(source, str | Path):
        return _read(Path(source))
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, dict):
        return pa.table(source)
    arrow = getattr(getattr(source, "data", None), "table", None)  # datasets.Dataset
    if isinstance(arrow, pa.Table):
        return source.with_format("arrow")[:]
    if hasattr(source, "__arrow_c_stream__"):  # pandas, polars, duckdb
        return pa.table(source)
    raise UserError(
        f"a table was given as {type(source).__name__}; allowed: a CSV or Parquet file, a data frame, an Arrow table"
    )


def _read(path: Path) -> pa.Table:
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return pyarrow.parquet.read_table(path)
        with open(path, encoding="utf-8-sig") as file:
            head = file.readline()
        delimiter = max("\t;,", key=head.count)
        return pyarrow.csv.read_csv(
            path,
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
            convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True),
        )
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist") from error
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise UserError(
            f"{path} cannot be read as a table: {(str(error).splitlines() or [repr(error)])[0]}"
        ) from error


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    first = tables[0]
    for column in first.column_names:
        if first.column_names.count(column) > 1:
            raise UserError(f"the table has {first.column_names.count(column)} columns called {column!r}")
    for other in tables[1:]:
        if set(first.column_names) != set(other.column_names):
            odd = sorted(set(first.column_names) ^ set(other.column_names))
            raise UserError(
                f"the test table must have the same columns; only one of the two has {', '.join(odd)}"
            )
    whole = pa.concat_tables([t.select(first.column_names) for t in tables], promote_options="permissive")
    if len(whole) < 2:
        raise UserError(f"the table has {len(whole)} rows; there must be at least 2")
    return whole


def _text(column: pa.ChunkedArray) -> bool:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_boolean(kind)
    )


def _no_gap(column: pa.ChunkedArray, name: str, hint: str = "") -> None:
    gaps = column.null_count
    if gaps:
        first = pc.index(pc.is_null(column), True).as_py() + 1
        raise UserError(f"the column {name!r} has {gaps} empty cells (first in row {first}){hint}")


def _labels(column: pa.ChunkedArray, name: str, task: Task) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Class numbers and names, or targets."""
    _no_gap(column, name, "; every row needs its label")
    if task == "auto":
        task = "regression" if pa.types.is_floating(column.type) else "classification"
    if task == "regression":
        return _numbers(column, name).astype(np.float32)[:, None], ()
    values = column.to_pylist()
    classes = sorted(set(values))
    number = {value: place for place, value in enumerate(classes)}
    return np.array([number[value] for value in values], dtype=np.int64), tuple(map(_word, classes))


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _groups(column: pa.ChunkedArray, name: str) -> tuple[Indices, tuple[str, ...]]:
    """Whose row it is, numbered in the order of the names."""
    _no_gap(column, name, "; every row needs its client")
    values = column.to_pylist()
    names = sorted(set(values))
    number = {value: place for place, value in enumerate(names)}
    return np.array([number[value] for value in values], dtype=np.int64), tuple(map(_word, names))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Inputs:
    """What one column becomes: some inputs, with their names."""

    values: Floats
    features: tuple[str, ...]
    texts: bool


def _inputs(column: pa.ChunkedArray, name: str, missing: Missing) -> _Inputs:
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    if missing == "refuse":
        _no_gap(column, name, '; fill them, leave the column out (features), or set missing = "mean"')
    if not _text(column):
        return _Inputs(values=_numbers(column, name)[:, None], features=(name,), texts=False)
    values = [None if value is None else _word(value) for value in column.to_pylist()]
    texts = sorted({value for value in values if value is not None})
    if len(texts) > MOST_CATEGORIES:
        raise UserError(
            f"the column {name!r} has {len(texts)} different texts; at most {MOST_CATEGORIES} can become inputs: "
            "leave it out (features)"
        )
    hot = np.array([[float(value == text) for text in texts] for value in values])
    return _Inputs(values=hot, features=tuple(f"{name}={text}" for text in texts), texts=True)


def _numbers(column: pa.ChunkedArray, name: str) -> Floats:
    try:
        found: Floats = np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    except pa.ArrowException as error:
        raise UserError(
            f"the column {name!r} holds {column.type}, which is neither numbers nor texts"
        ) from error
    if np.isinf(found).any():
        raise UserError(f"the column {name!r} holds infinity in row {int(np.isinf(found).argmax()) + 1}")
    return found


def _scale(train: Floats, numeric: NDArray[np.bool_]) -> Scale:
    """Mean and standard deviation of the numeric inputs over the training rows; the others stay as they are."""
    mean = np.where(numeric, np.nanmean(train, axis=0), 0.0)
    std = np.where(numeric, np.nanstd(train, axis=0), 1.0)
    return Scale(tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist()))


def _split(
    whole: pa.Table,
    first: int,
    given: bool,
    column: str | None,
    share: float,
    y: NDArray[Any],
    ids: Indices | None,
    classes: Sequence[str],
    seed: int,
) -> tuple[Indices, Indices]:
    """Training and test rows."""
    if given:
        return np.arange(first), np.arange(first, len(whole))
    if column is not None:
        held = np.array([str(value).lower() == "test" for value in whole[column].to_pylist()])
        if not held.any() or held.all():
            raise UserError(
                f"the column {column!r} says test for {held.sum()} of {len(held)} rows; some must"
            )
        return np.flatnonzero(~held), np.flatnonzero(held)
    strata = y if classes else np.zeros(len(whole), dtype=np.int64)
    if ids is None:
        return stratified_split(strata, test_fraction=share, rng=np.random.default_rng(seed))
    strata = ids * max(len(classes), 1) + strata
    train, test = stratified_split(strata, test_fraction=share, rng=np.random.default_rng(seed))
    return with_everybody(train, test, ids)
