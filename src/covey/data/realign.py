"""A table that was read by itself, under the schema that several tables share: inputs and classes by their names."""

import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from covey.data.schema import NO_CATEGORY, Column, Schema
from covey.data.types import Dataset, Indices
from covey.errors import UserError


def realigned(dataset: Dataset, schema: Schema) -> Dataset:
    """The data set with the inputs of the schema: their order does not matter, and a category that does not occur here
    is 0 everywhere.

    A `UserError` names the column, and the value, that the schema does not have.
    """
    if not dataset.features:
        raise UserError("the samples have no column names to compare; read them with covey.data.read_table")
    check_columns(dataset.features, schema)
    place = {name: at for at, name in enumerate(schema.inputs)}
    x = torch.zeros(len(dataset.x), len(schema.inputs), dtype=dataset.x.dtype)
    for at, name in enumerate(dataset.features):
        if (known := input_for(name, schema)) in place:
            x[:, place[known]] += dataset.x[:, at]
    made = replace(
        dataset,
        x=x,
        y=renumbered(dataset, schema),
        classes=schema.classes,
        features=schema.inputs,
        schema=schema,
        scale=schema.scale,
    )
    check_ranges(made)
    return made


def input_for(name: str, schema: Schema) -> str:
    """What an input is called under the schema: where it hashes a column, a category is its bucket."""
    column, equals, value = name.rpartition("=")
    hashed = next((each for each in schema.columns if each.name == column and each.hashed), None)
    return f"{column}={hashed.category_of(value)}" if equals and hashed is not None else name


def check_columns(inputs: tuple[str, ...], schema: Schema) -> None:
    """Refuses a column, or a category, that only one side has; indicators of empty cells may be missing."""
    known, columns = set(schema.inputs), {column.name: column for column in schema.columns}
    inputs = tuple(input_for(name, schema) for name in inputs)
    for name in inputs:
        if name in known or name.endswith(" (missing)"):
            continue
        column, equals, value = name.rpartition("=")
        if equals and column in columns:
            found = columns[column]
            if not found.categories:
                raise UserError(
                    f"the column {column!r} holds texts such as {value!r}; everybody's are numbers"
                )
            raise UserError(
                f"the column {column!r} holds {value!r}; everybody's categories are {', '.join(found.categories)}"
            )
        if name in columns:
            raise UserError(f"the column {name!r} holds numbers; everybody's are {columns[name].kind}")
        raise UserError(f"the column {column if equals else name!r} is not among everybody's columns")
    for each in schema.columns:
        wanted = {name for name in each.inputs if not name.endswith(" (missing)")}
        if not wanted & set(inputs):
            raise UserError(f"the column {each.name!r} ({each.kind}) is missing")


def renumbered(dataset: Dataset, schema: Schema) -> torch.Tensor:
    """The labels as numbers of the schema's classes."""
    if bool(dataset.classes) != bool(schema.classes):
        kinds = ("classes", "numbers") if dataset.classes else ("numbers", "classes")
        raise UserError(f"the label holds {kinds[0]}; everybody's are {kinds[1]}")
    odd = [name for name in dataset.classes if name not in schema.classes]
    if odd:
        raise UserError(f"the label holds {odd[0]!r}; everybody's classes are {', '.join(schema.classes)}")
    if dataset.classes == schema.classes:
        return dataset.y
    return torch.tensor([schema.classes.index(name) for name in dataset.classes])[dataset.y]


def check_ranges(dataset: Dataset) -> None:
    """Refuses numbers far outside of the range that the schema gives: they are in another unit."""
    assert dataset.schema is not None
    refuse_ranks(dataset.schema)
    for column, values in zip(
        dataset.schema.columns, blocks(dataset, np.arange(len(dataset.x))), strict=True
    ):
        if column.reach is None or not len(values):
            continue
        for value in (float(values.min()), float(values.max())):
            if not column.reach[0] <= value <= column.reach[1]:
                unit = f" {column.unit}" if column.unit else ""
                raise UserError(
                    f"the column {column.name!r} holds {value:g}; everybody's are from {column.low:g} to "
                    f"{column.high:g}{unit}"
                )


def refuse_ranks(schema: Schema) -> None:
    """Refuses ranks at real sites: what sites tell of their columns are counts, sums and sums of squares."""
    for column in schema.columns:
        if column.quantiles:
            raise UserError(
                f"the column {column.name!r} is taken by its rank, and sites do not tell quantiles of their rows: "
                'leave scaling = "quantile" out, or the quantiles out of the schema'
            )


def blocks(dataset: Dataset, rows: Indices) -> list[NDArray[np.float64]]:
    """What each column of the schema holds in these rows: numbers without empty cells, or a row of 0 and 1."""
    assert dataset.schema is not None
    x = dataset.x.numpy()[rows].astype(np.float64)
    found, at = [], 0
    for column in dataset.schema.columns:
        width = len(column.inputs)
        there = x[:, at + width - 1] == 0 if column.indicator else np.ones(len(x), bool)
        found.append(x[there, at : at + len(column.categories)] if column.categories else x[there, at])
        at += width
    return found


def sums(dataset: Dataset, rows: Indices) -> NDArray[np.float64]:
    """What `Schema.fitted` needs of these rows: count, sum and sum of squares of numbers, counts of categories."""
    assert dataset.schema is not None
    parts = []
    for column, values in zip(dataset.schema.columns, blocks(dataset, rows), strict=True):
        if column.categories:
            parts.append(values.sum(axis=0))
        else:
            parts.append(np.array([len(values), values.sum(), (values**2).sum()]))
    return np.concatenate(parts)


def added(schema: Schema, told: list[tuple[Schema, NDArray[np.float64]]]) -> NDArray[np.float64]:
    """Everybody's sums under the schema that they share."""
    total = np.zeros(schema.places[-1].stop)
    where = {(c.name, c.kind): (c, place) for c, place in zip(schema.columns, schema.places, strict=True)}
    for theirs, values in told:
        for column, place in zip(theirs.columns, theirs.places, strict=True):
            shared, ours = where[column.name, column.kind]
            if not column.categories:
                total[ours] += values[place]
                continue
            for category, count in zip(column.categories, values[place], strict=True):
                total[ours.start + shared.categories.index(shared.category_of(category))] += count
    return total


def asked(schema: Schema) -> Schema:
    """The same columns for rows that are only to be counted: empty cells can be told from others."""
    seen: set[str] = set()
    made = []
    for column in schema.columns:
        middle = sum(column.span or (0.0, 0.0)) / 2
        fill = NO_CATEGORY if column.categories else middle
        made.append(replace(column, fill=fill, indicator=column.name not in seen, mean=None, std=None))
        seen.add(column.name)
    return replace(schema, columns=tuple(made))


def bounded_sums(dataset: Dataset, rows: Indices) -> tuple[NDArray[np.float64], float]:
    """What `sums` gives, with numbers cut off at their column's range and moved to -1..1; how far one row changes it.

    A row changes the vector of a column of numbers by at most (1, 1, 1), of categories by 1 in one place, so all of it
    by at most sqrt(3 numbers + categories) in length.
    """
    assert dataset.schema is not None
    parts, changes = [], 0.0
    for column, values in zip(dataset.schema.columns, blocks(dataset, rows), strict=True):
        if column.categories:
            parts.append(values.sum(axis=0))
            changes += 1
            continue
        low, half = _half(column)
        moved = (values.clip(low, low + 2 * half) - low) / half - 1
        parts.append(np.array([len(moved), moved.sum(), (moved**2).sum()]))
        changes += 3
    return np.concatenate(parts), math.sqrt(changes)


def unbounded(schema: Schema, told: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of numbers u in -1..1 as those of the numbers v = m + h u: of v it is m n + h sum(u), and so on."""
    made = told.copy()
    for column, place in zip(schema.columns, schema.places, strict=True):
        if column.categories:
            continue
        low, half = _half(column)
        middle, (count, added, squares) = low + half, told[place].tolist()
        made[place] = (
            count,
            middle * count + half * added,
            middle**2 * count + 2 * middle * half * added + half**2 * squares,
        )
    return made


def without_range(schema: Schema) -> list[str]:
    """The names of the columns of numbers whose range nobody has said."""
    return list(dict.fromkeys(c.name for c in schema.columns if not c.categories and c.span is None))


def _half(column: Column) -> tuple[float, float]:
    """Where a column's range begins, and half of its width."""
    assert column.span is not None
    low, high = column.span
    return low, (high - low) / 2 or 1.0


def structure(schema: Schema) -> Schema:
    """What a site tells of its columns: names, kinds, units, categories and ranges; no means."""
    refuse_ranks(schema)
    return replace(
        schema,
        columns=tuple(
            Column(
                name=c.name,
                kind=c.kind,
                unit=c.unit,
                categories=c.categories,
                fill=None if not c.indicator else (c.categories[0] if c.categories else 0.0),
                indicator=c.indicator,
                low=c.low,
                high=c.high,
                written=c.written,
            )
            for c in schema.columns
        ),
    )
