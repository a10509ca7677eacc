"""A data set from a table: a CSV, Parquet or Excel file, a database, a data frame, or a Hugging Face data set."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from covey.data.cells import some, tidied
from covey.data.columns import Choices, look
from covey.data.encoding import assembled, columns_of
from covey.data.ranks import quantiles_of, ranks
from covey.data.schema import NO_CATEGORY, Column, DecimalPoint, Schema, read_schema
from covey.data.table_files import ADDRESS, Reading, open_table
from covey.data.table_rows import (
    LabelTask,
    groups_of,
    labels_of,
    on_one_side,
    split_rows,
    task_of,
    usable_rows,
)
from covey.data.types import Dataset, Indices
from covey.data.usual import NUMBERS_CLIP, Usual, declare
from covey.errors import UserError, user_error
from covey.settings.ranges import Part
from covey.settings.registry import register
from covey.settings.signatures import takes, validated

MissingCells = Literal["indicator", "mean", "refuse"]
TableScaling = Literal["standard", "quantile"]
NO_FILL = '; fill them, leave the column out (exclude), or set missing = "indicator"'


@validated
def read_table(
    source: Any,
    *,
    label: str,
    client: str | None = None,
    together: str | None = None,
    features: Sequence[str] = (),
    exclude: Sequence[str] = (),
    categories: Sequence[str] = (),
    test: Any = None,
    split: str | None = None,
    test_share: Part = 0.2,
    task: LabelTask = "auto",
    missing: MissingCells = "indicator",
    na_values: Sequence[str] = (),
    standardise: bool = True,
    scaling: TableScaling = "standard",
    encoding: str = "",
    delimiter: str = "",
    decimal_point: DecimalPoint = "auto",
    date_format: str = "",
    sheet: str = "",
    query: str = "",
    schema: Any = None,
    name: str = "",
    seed: int = 0,
) -> Dataset:
    """A data set from the rows of a table.

    Args:
        source: a CSV, Parquet or Excel file, a database, a data frame, a `datasets.Dataset`.
        label: the column to predict; texts, truth values and whole numbers are classes, other numbers targets.
        client: the column that says whose row it is; with the partition "natural", each value is a client.
        together: a column such as patient or date, whose rows stay on one side of every split; it is no input.
        features: the input columns; all others by default, but those that look like IDs.
        exclude: columns that are no inputs.
        categories: columns of numbers that are codes: one input per value, as columns of texts have.
        test: another table with the same columns.
        split: a column that says `test` for test rows.
        test_share: of the rows that are test rows otherwise, by client and label.
        task: what the label is; auto takes texts and whole numbers as classes.
        missing: indicator fills empty cells with the mean or the most frequent category and adds an input that says
            so; mean fills numbers only, and nothing says so; refuse takes no empty cells. Rows without a label are left
            out by the first two.
        na_values: texts that mean an empty cell, beside the usual ones.
        standardise: whether inputs are shifted and scaled by mean and standard deviation of the training rows.
        scaling: standard takes numbers as they are; quantile takes their rank among the training rows first, in
            steps of 1/32, so that a few large numbers do not make all others alike.
        encoding: of a CSV file; UTF-8, UTF-16 and cp1252 are found.
        delimiter: of a CSV file; tab, semicolon, comma and bar are found.
        decimal_point: of numbers; auto finds commas where they can be nothing else.
        date_format: how dates are written, as for strptime, where they can be read in two ways; year, month, weekday
            and hour are inputs as far as they vary.
        sheet: of an Excel file; the first by default.
        query: the rows of a database, in SQL.
        schema: a Schema, or the file of one, that says all of the columns.
        name: of the data set.
        seed: of the test rows.

    Returns:
        The data set.

    Raises:
        UserError: where a column is missing or a cell cannot be read, with its row.

    Examples:
        >>> import pathlib
        >>> rows = [f"{i % 7},{'ill' if i % 3 else 'well'},{'north' if i % 2 else 'south'}" for i in range(80)]
        >>> _ = pathlib.Path("patients.csv").write_text("age,state,hospital\\n" + "\\n".join(rows))
        >>> table = covey.read_table("patients.csv", label="state", client="hospital")
        >>> table.features, table.classes
        (('age',), ('ill', 'well'))
    """
    reading = Reading(
        encoding=encoding, delimiter=delimiter, decimal_point=decimal_point, sheet=sheet, query=query
    )
    opened = [open_table(part, reading) for part in ([source] if test is None else [source, test])]
    whole = _joined([part.table for part in opened])
    called = name or (Path(source).stem if isinstance(source, str | Path) else "table")
    given = schema if isinstance(schema, Schema | None) else read_schema(Path(schema))
    _all_there(whole, called, (label, client, together, split, *features, *exclude, *categories))
    notes = list(dict.fromkeys(note for part in opened for note in part.notes))
    if given is None:
        inputs = _inputs(whole, called, label, (client, together, split), features, exclude)
        codes, empty = set(categories), tuple(na_values)
        choices = Choices(features=set(features), categories=codes, na_values=empty, date_format=date_format)
        columns, seen = _seen(whole, called, inputs, choices)
        notes += seen
        plan = Schema(columns=columns, label=label, na_values=empty, decimal_point=decimal_point)
    else:
        plan = _as_given(given, label, (*features, *exclude, *categories))
    rows, said = usable_rows(whole, label, client, together, na_values=na_values, refuse=missing == "refuse")
    cells = [column[rows] for column in columns_of(plan, whole)]
    first, whole = int(np.searchsorted(rows, len(opened[0].table))), whole.take(rows)
    y, classes = labels_of(whole[label], label, task, given)
    if len(classes) == 1 and given is None:
        said += [f"the label {label!r} is {classes[0]!r} in all rows: there is nothing to tell apart"]
    ids, names = groups_of(whole[client], client) if client is not None else (None, ())
    units = groups_of(whole[together], together)[0] if together is not None else None
    train, held = split_rows(whole, first, test is not None, split, test_share, y, ids, classes, seed, units)
    if together is not None and units is not None:
        on_one_side(units, train, held, together)
    if given is None:
        plan = replace(_fitted(plan, cells, train, missing, standardise, scaling), classes=classes)
        said += _told_of_gaps(plan, cells, missing)
    x = assembled(plan, cells, hint=NO_FILL if given is None else "; the schema has no fill value for it")
    return Dataset(
        name=called,
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.from_numpy(y),
        train=train,
        test=held,
        classes=classes,
        scale=plan.scale,
        natural={name: of for name, of in ((client, ids), (together, units)) if name and of is not None},
        group_names={client: names} if client is not None else {},
        clients_by=client or "",
        together=together or "",
        features=plan.inputs,
        schema=plan,
        notes=(*notes, *said),
    )


@register("data set", "table")
@takes(read_table, without=("source", "name", "seed"))
def table(*, path: Path, test: Path | None = None, schema: Path | None = None, **settings: Any) -> Dataset:
    """A table of your own: one row per sample, a column to predict, a column that says whose row it is.

    Args:
        path: a CSV, Parquet, Excel or SQLite file, or the address of a database.
        test: a second file, of test rows.
        schema: a JSON file that says what the columns are, in place of what this table looks like.
    """
    return read_table(path, test=test, schema=schema, **settings)


def _usual(
    *, path: Path, label: str = "", client: str | None = None, task: LabelTask = "auto", **settings: Any
) -> Usual:
    """What a configuration means when it says nothing of it: each value of the client column is a client, and a label
    that is a number is a regression's."""
    told = {key: settings[key] for key in Reading.__dataclass_fields__ if key in settings}
    whole = _joined([open_table(path, Reading(**told)).table])
    names = set(whole.column_names)
    if client is not None and client not in names:
        raise UserError(
            f"data.client is {client!r}; the columns of {path} are {some(whole.column_names, 20)}"
        )
    if label in names:
        na_values = settings.get("na_values", ())
        whole = whole.take(usable_rows(whole, label, client, na_values=na_values)[0])
    numbers = label in names and task_of(tidied(whole[label]), label, task) == "regression"
    learned = Usual(objective="regression", clip=NUMBERS_CLIP) if numbers else Usual()
    if client is None:
        return replace(learned, partition="iid" if numbers else None)
    return replace(learned, partition="natural", clients=len(groups_of(whole[client], client)[1]))


def _data_files(*, path: Path, test: Path | None = None, schema: Path | None = None, **_: Any) -> list[Path]:
    """What the run folder keeps the hash of."""
    files = [Path(file) for file in (path, test, schema) if file is not None]
    return [file for file in files if not ADDRESS.match(str(file))]


declare(table, usual=_usual, files=_data_files)


# ---------------------------------------------------------------------------------------------- columns


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    first = tables[0]
    names = first.column_names
    for other in tables[1:]:
        odd = sorted(set(names) ^ set(other.column_names))
        if odd:
            raise UserError(f"the test table must have the same columns; only one of the two has {some(odd)}")
    with user_error("the test table must have the same types of columns"):
        whole = pa.concat_tables([t.select(names) for t in tables], promote_options="permissive")
    if len(whole) < 2:
        raise UserError(f"the table has {len(whole)} rows; there must be at least 2")
    return whole


def _all_there(whole: pa.Table, called: str, wanted: Sequence[str | None]) -> None:
    names = set(whole.column_names)
    for column in wanted:
        if column is not None and column not in names:
            raise UserError(
                f"{called} has no column {column!r}; its columns are {some(whole.column_names, 20)}"
            )


def _inputs(
    whole: pa.Table,
    called: str,
    label: str,
    others: Sequence[str | None],
    features: Sequence[str],
    exclude: Sequence[str],
) -> tuple[str, ...]:
    """The names of the columns that may be inputs."""
    if label in features:
        raise UserError(f"{called}: {label!r} is the label, so it cannot be among the features")
    both = [column for column in features if column in exclude]
    if both:
        raise UserError(f"{called}: {both[0]!r} is among the features and excluded")
    taken = {label, *others, *exclude}
    inputs = tuple(features) or tuple(column for column in whole.column_names if column not in taken)
    if not inputs:
        raise UserError(f"{called} has no column left for the features")
    return inputs


def _seen(
    whole: pa.Table, called: str, inputs: tuple[str, ...], choices: Choices
) -> tuple[tuple[Column, ...], list[str]]:
    """What the columns look like, and what is to be said of it."""
    found = look(whole, inputs, choices)
    notes = found.notes()
    if not found.columns:
        raise UserError(f"{called} has no column left for the features; {'; '.join(notes)}")
    return tuple(found.columns), notes


def _as_given(schema: Schema, label: str, said: Sequence[str]) -> Schema:
    """A schema that was given, which says all of the columns."""
    if said:
        raise UserError("features, exclude and categories do not go with a schema, which says all of that")
    if schema.label and schema.label != label:
        raise UserError(f"the label is {label!r}; the schema's label is {schema.label!r}")
    return schema


def _fitted(
    plan: Schema,
    columns: Sequence[NDArray[Any]],
    train: Indices,
    missing: MissingCells,
    standardise: bool,
    scaling: TableScaling,
) -> Schema:
    """The columns with fill values, ranges, quantiles and scale of the training rows."""
    rows = assembled(plan, columns, raw=True)[train]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column may be empty in all training rows
        mean, std = np.nan_to_num(np.nanmean(rows, axis=0)), np.nan_to_num(np.nanstd(rows, axis=0))
        low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
    std = np.where(std > 0, std, 1.0)
    made: list[Column] = []
    at = 0
    for column, values in zip(plan.columns, columns, strict=True):
        known = values[train]
        empty = known < 0 if column.kind == "category" else np.isnan(known)
        indicator = missing == "indicator" and bool(empty.any())
        if column.kind == "category":
            counts = np.bincount(known[~empty], minlength=len(column.categories))
            mode = column.categories[int(counts.argmax())] if missing == "indicator" else NO_CATEGORY
            column = replace(column, fill=None if missing == "refuse" else mode, indicator=indicator)
        else:
            first = not (made and made[-1].name == column.name)  # of the parts of a date, one tells
            column = replace(
                column,
                fill=None if missing == "refuse" else float(mean[at]),
                indicator=indicator and first,
                low=float(low[at]) if np.isfinite(low[at]) else None,
                high=float(high[at]) if np.isfinite(high[at]) else None,
                mean=float(mean[at]) if standardise else None,
                std=float(std[at]) if standardise else None,
            )
            if scaling == "quantile" and not empty.all():
                column = _ranked(column, known[~empty])
        made.append(column)
        at += len(column.categories) or 1
    return replace(plan, columns=tuple(made))


def _ranked(column: Column, known: NDArray[np.float64]) -> Column:
    """The column by the ranks of these numbers, with their mean and deviation where it has a scale."""
    column = replace(column, quantiles=quantiles_of(known))
    if column.std is None:
        return column
    found = ranks(column.quantiles, known)
    return replace(column, mean=float(found.mean()), std=float(found.std()) or 1.0)


def _told_of_gaps(plan: Schema, columns: Sequence[NDArray[Any]], missing: MissingCells) -> list[str]:
    gaps = {
        column.name: int((values < 0).sum() if column.kind == "category" else np.isnan(values).sum())
        for column, values in zip(plan.columns, columns, strict=True)
    }
    with_gaps = [name for name, count in gaps.items() if count]
    if not with_gaps or missing == "refuse":
        return []
    filled = "the mean or the most frequent category, and one more input per column says so"
    return [
        f"{sum(gaps.values()):,} empty cells in {some(with_gaps)} are filled with "
        f'{filled if missing == "indicator" else "the mean"} (missing = "refuse" does not accept them)'
    ]
