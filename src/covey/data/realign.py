"""A table that was read by itself, under the schema that several tables share: inputs and classes by their names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from covey.data.schema import Column, Schema
from covey.data.types import Dataset, Indices
from covey.errors import UserError

FAR = 1.0  # times the range of a column beyond which a number must be in another unit


def realigned(dataset: Dataset, schema: Schema) -> Dataset:
    """The data set with the inputs of the schema: their order does not matter, and a category that does not occur here
    is 0 everywhere.

    A `UserError` names the column, and the value, that the schema does not have.
    """
    if not dataset.features:
        raise UserError("the samples have no column names to compare; read them with covey.data.read_table")
    check_columns(dataset.features, schema)
    place = {name: at for at, name in enumerate(dataset.features)}
    x = torch.zeros(len(dataset.x), len(schema.inputs), dtype=dataset.x.dtype)
    for at, name in enumerate(schema.inputs):
        if name in place:
            x[:, at] = dataset.x[:, place[name]]
    made = replace(
        dataset,
        x=x,
        y=relabelled(dataset, schema),
        classes=schema.classes,
        features=schema.inputs,
        schema=schema,
        scale=schema.scale,
    )
    check_ranges(made)
    return made


def check_columns(inputs: tuple[str, ...], schema: Schema) -> None:
    """Refuses a column, or a category, that only one side has; indicators of empty cells may be missing."""
    known, columns = set(schema.inputs), {column.name: column for column in schema.columns}
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


def relabelled(dataset: Dataset, schema: Schema) -> torch.Tensor:
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
    for column, values in zip(
        dataset.schema.columns, blocks(dataset, np.arange(len(dataset.x))), strict=True
    ):
        if column.categories or column.low is None or column.high is None or not len(values):
            continue
        far = FAR * max(column.high - column.low, 1e-12)
        for value in (float(values.min()), float(values.max())):
            if not column.low - far <= value <= column.high + far:
                unit = f" {column.unit}" if column.unit else ""
                raise UserError(
                    f"the column {column.name!r} holds {value:g}; everybody's are from {column.low:g} to "
                    f"{column.high:g}{unit}"
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
                total[ours.start + shared.categories.index(category)] += count
    return total


def structure(schema: Schema) -> Schema:
    """What may be told of a schema without telling numbers of the data."""
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
                written=c.written,
            )
            for c in schema.columns
        ),
    )
