"""What each column of somebody's table is: a number, a category, a date, or nothing to learn from, such as an ID."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from covey.data.cells import (
    NUMBER,
    WITH_COMMA,
    date_parts,
    is_date,
    is_number,
    is_text_column,
    not_for_models,
    parsed_dates,
    some,
    stray_text,
    tidied,
    uses_commas,
    words_of,
)
from covey.data.schema import BUCKETS, DATE_PARTS, Column
from covey.errors import UserError

FEW = 10  # up to this many different numbers written as texts may be meant as categories
FEWEST_ROWS = 20  # in a shorter table all values may differ by chance
ALMOST = 0.9  # share of the rows with a value of their own from which on it is an ID, though some come twice
ID_WORDS = "id|uid|uuid|guid|mrn|nr|no|num|number|nummer|key|index|row|record|case|patient|person|subject|participant"
ID_NAME = re.compile(rf"(^|[\s_.-])({ID_WORDS}|unnamed: 0)$|^$|(?-i:[a-z](ID|Id|Nr|No)$)", re.I)
UNIT = re.compile(r"\[([^\[\]]+)\]\s*$")  # weight [kg]
TIMES = ("", " %H:%M", " %H:%M:%S")
DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y.%m.%d", "%d-%m-%Y", "%m-%d-%Y")
WITH_UNIT = (
    r"^\s*([€$£]\s*[+-]?\d+([.,]\d+)*|[+-]?\d+([.,]\d+)*\s*([%€$£‰]|[a-zA-Zµ°/]{1,8}))\s*$"  # 5 %, € 3
)
LIKE_A_DATE = (
    r"^\s*(\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{4}[./-]\d{1,2}[./-]\d{1,2})"
    r"([T ]\d{1,2}:\d\d(:\d\d(\.\d+)?)?)?\s*$"
)


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the user says of the columns.

    features: the input columns, whatever they look like; none means all others.
    categories: columns of categories, though they look like numbers.
    na_values: texts that mean an empty cell, beside the usual ones.
    date_format: how dates are written, where they can be read in two ways.
    """

    features: Collection[str] = ()
    categories: Collection[str] = ()
    na_values: Sequence[str] = ()
    date_format: str = ""


@dataclass
class SeenColumns:
    """The columns with what they hold, and what was decided on the way."""

    columns: list[Column] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    perhaps_ids: list[str] = field(default_factory=list)
    dates: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)

    def notes(self) -> list[str]:
        """One sentence per decision."""
        found = []
        if self.ids:
            found.append(
                f"left out, because they look like IDs: {some(self.ids)}; name the inputs (features) to use them"
            )
        if self.perhaps_ids:
            found.append(
                f"every row has a number of its own in {some(self.perhaps_ids)}: leave it out (exclude) if it is an ID"
            )
        if self.empty:
            found.append(f"left out, because they hold nothing that differs: {some(self.empty)}")
        hashed = [column.name for column in self.columns if column.hashed]
        if hashed:
            found.append(
                f"more than {len(BUCKETS)} different texts, so that some share an input by their hash: {some(hashed)}; "
                "leave them out (exclude) if they are names or notes"
            )
        if self.dates:
            parts = [f"{c.name}.{c.kind}" for c in self.columns if c.kind in DATE_PARTS]
            found.append(f"dates are read as {some(parts, 12)}")
        return found


def look(table: pa.Table, names: Sequence[str], choices: Choices) -> SeenColumns:
    """What the named columns of a table are; a `UserError` for one that cannot be an input as it is."""
    found = SeenColumns()
    for name in names:
        cells = tidied(table[name], choices.na_values)
        metadata = table.schema.field(name).metadata or {}
        in_name = UNIT.search(name)
        unit = metadata.get(b"unit", b"").decode("utf-8", "replace") or (in_name.group(1) if in_name else "")
        _look_at(found, cells, name, unit, choices)
    return found


def _look_at(found: SeenColumns, cells: pa.ChunkedArray, name: str, unit: str, choices: Choices) -> None:
    wanted = name in choices.features
    known = cells.drop_null()
    if not len(known):
        if wanted:
            raise UserError(f"the column {name!r} has no value in any row; leave it out of the features")
        found.empty.append(name)
    elif name in choices.categories or pa.types.is_boolean(cells.type):
        found.columns.append(_category(known, name))
    elif is_number(cells.type):
        if not wanted and _is_id(known, len(cells), name):
            found.ids.append(name)
            return
        if not wanted and pa.types.is_integer(cells.type) and _all_differ(known, len(cells)):
            found.perhaps_ids.append(name)
        found.columns.append(Column(name=name, unit=unit))
    elif is_date(cells.type):
        _date(found, known, name, "", wanted)
    elif is_text_column(cells.type):
        _text(found, cells, name, unit, choices)
    else:
        raise not_for_models(cells, name)


def _text(found: SeenColumns, cells: pa.ChunkedArray, name: str, unit: str, choices: Choices) -> None:
    known = cells.drop_null()
    texts = pc.unique(known)
    numbers = stray_text(texts) is None and (len(texts) > FEW or bool(choices.na_values))
    if numbers or uses_commas(texts, name):
        found.columns.append(Column(name=name, unit=unit))
        return
    written = _date_format(texts, name, choices.date_format)
    if written is not None:
        dates = parsed_dates(known, written)
        _date(found, dates, name, written, name in choices.features)
        return
    _refuse_stray(cells, known, texts, name)
    if name not in choices.features and _is_id(known, len(cells), name):
        found.ids.append(name)
        return
    found.columns.append(_category(known, name))


def _refuse_stray(cells: pa.ChunkedArray, known: pa.ChunkedArray, texts: pa.Array, name: str) -> None:
    """A `UserError` where most cells are numbers, or dates, and one is not: no silent categories."""
    if len(texts) <= FEW:
        return
    if pc.all(pc.match_substring_regex(texts, WITH_UNIT)).as_py():
        raise UserError(
            f"the column {name!r} holds numbers with a unit, such as {texts[0].as_py()!r}: write the numbers alone, or "
            "leave it out (exclude)"
        )
    for what, pattern in (("numbers", NUMBER), ("numbers", WITH_COMMA), ("dates", LIKE_A_DATE)):
        like = pc.match_substring_regex(texts, pattern)
        rows = pc.sum(pc.match_substring_regex(known, pattern)).as_py()
        if pc.sum(like).as_py() > FEW and rows >= len(known) / 2:
            text = texts[pc.index(like, False).as_py()].as_py()
            row = pc.index(cells, text).as_py() + 1
            raise UserError(
                f"the column {name!r} holds {what}, but {text!r} in row {row}: correct it, say na_values = "
                f'["{text}"] if it means an empty cell, or categories = ["{name}"] if all are categories'
            )


def _category(known: pa.ChunkedArray, name: str) -> Column:
    words = sorted(pc.unique(words_of(known, name)).to_pylist())
    if len(words) > len(BUCKETS):
        return Column(name=name, kind="category", categories=BUCKETS, hashed=True)
    return Column(name=name, kind="category", categories=tuple(words))


def _date(found: SeenColumns, known: pa.ChunkedArray, name: str, written: str, wanted: bool) -> None:
    parts = [kind for kind in DATE_PARTS if len(np.unique(date_parts(known, kind))) > 1]
    if not parts:
        if wanted:
            raise UserError(
                f"the column {name!r} holds the same date in all rows; leave it out of the features"
            )
        found.empty.append(name)
        return
    found.dates.append(name)
    found.columns += [Column(name=name, kind=kind, written=written) for kind in parts]


def _date_format(texts: pa.Array, name: str, given: str) -> str | None:
    """How these texts are dates: "" is ISO 8601, None that they are none."""
    if not pc.all(pc.match_substring_regex(texts, LIKE_A_DATE)).as_py():
        return None
    forms = ("", *([given] if given else [day + time for day in DATES for time in TIMES]))
    fits = [form for form in forms if parsed_dates(texts, form).null_count == 0]
    if not fits:
        least = min(forms, key=lambda form: parsed_dates(texts, form).null_count)
        wrong = texts[pc.index(pc.is_null(parsed_dates(texts, least)), True).as_py()].as_py()
        raise UserError(
            f"the column {name!r} looks like dates, but {wrong!r} cannot be read as one{f' ({given})' if given else ''}"
        )
    if len(fits) > 1:
        raise UserError(
            f"the column {name!r} holds dates such as {texts[0].as_py()!r}, which can be read in two ways: say "
            f'date_format = "{fits[0]}" or "{fits[1]}"'
        )
    return fits[0]


def _all_differ(known: pa.ChunkedArray, rows: int) -> bool:
    return rows >= FEWEST_ROWS and len(known) == rows and len(pc.unique(known)) == rows


def _is_id(known: pa.ChunkedArray, rows: int, name: str) -> bool:
    """Texts that are almost all different; whole numbers only if they are called so, too: they may be measured."""
    if rows < FEWEST_ROWS or pa.types.is_floating(known.type) or pa.types.is_decimal(known.type):
        return False
    if not is_text_column(known.type) and not ID_NAME.search(name.strip()):
        return False
    values = len(pc.unique(known))
    return values >= FEWEST_ROWS and values >= ALMOST * len(known)
