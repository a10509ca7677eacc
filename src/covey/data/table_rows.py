"""The rows of a table: what is predicted of each, whose it is, and whether it is for training or for testing."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from covey.data.cells import (
    is_date,
    is_number,
    is_text_column,
    not_for_models,
    numbers_of,
    some,
    tidied,
    uses_commas,
    words_of,
)
from covey.data.convert import draw_test
from covey.data.schema import Schema
from covey.data.types import Indices, class_name
from covey.errors import UserError

LabelTask = Literal["auto", "classification", "regression"]
MANY_CLASSES = 100  # whole numbers with more values, mostly different ones, may be meant as numbers


def _gaps(column: pa.ChunkedArray, name: str) -> str:
    """The empty cells in words; nothing where there are none."""
    gaps = column.null_count
    if not gaps:
        return ""
    first = pc.index(pc.is_null(column), True).as_py() + 1
    return f"the column {name!r} has {gaps:,} empty cells (first in row {first})"


def no_gap(column: pa.ChunkedArray, name: str, what: str) -> None:
    if said := _gaps(tidied(column), name):
        raise UserError(f"{said}; every row needs its {what}")


def usable_rows(
    whole: pa.Table,
    label: str,
    client: str | None,
    together: str | None = None,
    *,
    na_values: Sequence[str] = (),
    refuse: bool = False,
) -> tuple[Indices, list[str]]:
    """The rows with a label, and a note on the others, from which nothing can be learned."""
    for name, what in ((client, "client"), (together, "unit")):
        if name is not None:
            no_gap(whole[name], name, what)
    column = tidied(whole[label], na_values)
    said = _gaps(column, label)
    if said and (refuse or column.null_count == len(column)):
        raise UserError(f"{said}; every row needs its label")
    rows = np.flatnonzero(column.is_valid().to_numpy())
    return rows, [f"{said}: rows without a label are left out"] if said else []


def labels_of(
    column: pa.ChunkedArray, name: str, task: LabelTask, given: Schema | None
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Class numbers and names, or targets."""
    column = tidied(column)
    if given is not None:
        task = "classification" if given.classes else "regression"
    task = task_of(column, name, task)
    if task == "regression":
        return numbers_of(column, name).astype(np.float32)[:, None], ()
    if given is not None:
        return _known_classes(column, name, given.classes)
    return _numbered(column, name)


def task_of(column: pa.ChunkedArray, name: str, task: LabelTask) -> LabelTask:
    """What `auto` means for this label; a `UserError` where it may be either."""
    if task != "auto":
        return task
    commas = is_text_column(column.type) and uses_commas(pc.unique(column.drop_null()), name)
    if commas or pa.types.is_floating(column.type):
        return "regression"
    if is_text_column(column.type) or pa.types.is_integer(column.type):
        values = len(pc.unique(column))
        if values > max(MANY_CLASSES, len(column) / 2):
            raise UserError(
                f'the label {name!r} has {values:,} different values: say task = "regression" if it is a '
                'number to predict, or task = "classification" if each is a class'
            )
    return "classification"


def _known_classes(
    column: pa.ChunkedArray, name: str, classes: tuple[str, ...]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    words = words_of(column, name)
    places = pc.index_in(words, value_set=pa.array(classes, type=words.type))
    if places.null_count:
        row = pc.index(pc.is_null(places), True).as_py()
        raise UserError(
            f"the label {name!r} is {words[row].as_py()!r} in row {row + 1}; "
            f"the schema's classes are {some(classes, 20)}"
        )
    return np.asarray(places.to_numpy(), dtype=np.int64), classes


def _numbered(column: pa.ChunkedArray, name: str) -> tuple[Indices, tuple[str, ...]]:
    """Values numbered in their order, and what they are called."""
    kind = column.type
    if not (is_text_column(kind) or is_number(kind) or is_date(kind) or pa.types.is_boolean(kind)):
        raise not_for_models(column, name)
    values = column.to_pylist()
    names = sorted(set(values))
    number = {value: place for place, value in enumerate(names)}
    return np.array([number[value] for value in values], dtype=np.int64), tuple(map(class_name, names))


def groups_of(column: pa.ChunkedArray, name: str) -> tuple[Indices, tuple[str, ...]]:
    """Whose row it is, numbered in the order of the names."""
    return _numbered(tidied(column), name)


def split_rows(
    whole: pa.Table,
    first: int,
    given: bool,
    column: str | None,
    share: float,
    y: NDArray[Any],
    ids: Indices | None,
    classes: Sequence[str],
    seed: int,
    units: Indices | None = None,
) -> tuple[Indices, Indices]:
    """Training and test rows; of `units` all rows are on one side."""
    if given:
        return np.arange(first), np.arange(first, len(whole))
    if column is not None:
        held = np.array([str(value).lower() == "test" for value in whole[column].to_pylist()])
        if not held.any() or held.all():
            raise UserError(
                f"the column {column!r} says test for {held.sum()} of {len(held)} rows; some must"
            )
        return np.flatnonzero(~held), np.flatnonzero(held)
    return draw_test(y, len(classes), share, np.random.default_rng(seed), ids, units)


def on_one_side(units: Indices, train: Indices, test: Indices, name: str) -> None:
    """Refuses a split that somebody gave where rows of one unit are on both sides of it."""
    both = np.intersect1d(units[train], units[test])
    if len(both):
        raise UserError(
            f"together is {name!r}, and {len(both):,} of its values have training rows and test rows; "
            "split the table by it, or leave the split to covey"
        )
