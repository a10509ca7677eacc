"""What the columns of a table are to a model: types, categories, fill values and scale, as plain JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_type_hints

import numpy as np

from covey.arrays import Array
from covey.data.ranks import ascend
from covey.data.types import Scale
from covey.errors import UserError

Kind = Literal["number", "category", "year", "month", "weekday", "hour"]
DecimalPoint = Literal["auto", ".", ","]
DATE_PARTS: tuple[Kind, ...] = ("year", "month", "weekday", "hour")
NO_CATEGORY = ""  # the fill value of an empty cell that belongs to none of the categories
BUCKETS = tuple(f"#{number}" for number in range(128))  # the categories of a column with too many texts
NARROW = 1e-12  # a variance below this share of the mean square is rounding
# The range of the parts of a date, whatever the data.
ALWAYS: Mapping[str, tuple[float, float]] = {"month": (1.0, 12.0), "weekday": (0.0, 6.0), "hour": (0.0, 23.0)}
LEAST_SPREAD = 0.01  # of noisy numbers: the least variance, as a share of (half the range)^2


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table, or one part of a column of dates, as a model takes it.

    name: as it is written in the table.
    kind: number, category, or the part of a date that is read: year, month, weekday (Monday is 0), hour.
    unit: in which numbers are given, if known.
    categories: the values of a category column, one input each.
    fill: what an empty cell counts as; None where empty cells are refused.
    indicator: whether one more input says that the cell was empty.
    low, high: the smallest and the largest number in the training rows, if known.
    quantiles: numbers of the training rows at equal steps of their rank; with these a number becomes its rank, 0 to 1.
    mean, std: by which numbers (or their ranks) are standardised; None where they are not.
    written: how dates are written as text (as for strptime), if not as in ISO 8601.
    hashed: whether a text belongs to a category by its hash, because there are too many texts for one each.
    """

    name: str
    kind: Kind = "number"
    unit: str = ""
    categories: tuple[str, ...] = ()
    fill: float | str | None = None
    indicator: bool = False
    low: float | None = None
    high: float | None = None
    quantiles: tuple[float, ...] = ()
    mean: float | None = None
    std: float | None = None
    written: str = ""
    hashed: bool = False

    def __post_init__(self) -> None:
        said = f"the column {self.name!r}"
        if self.kind not in get_args(Kind):
            raise UserError(f"{said} has kind {self.kind!r}; allowed: {', '.join(get_args(Kind))}")
        if (self.kind == "category") != bool(self.categories):
            needs = "needs" if self.kind == "category" else "is no category column, so it has no"
            raise UserError(f"{said} {needs} categories")
        if len(set(self.categories)) != len(self.categories):
            raise UserError(f"{said} names a category twice")
        if self.hashed and self.categories != BUCKETS:
            raise UserError(f"{said} is hashed, so its categories are {BUCKETS[0]} to {BUCKETS[-1]}")
        if self.kind == "category" and self.fill not in (None, NO_CATEGORY, *self.categories):
            raise UserError(f"{said} fills empty cells with {self.fill!r}, which is none of its categories")
        if self.kind != "category" and isinstance(self.fill, str):
            raise UserError(f"{said} fills empty cells with {self.fill!r}; allowed: a number")
        for field in ("fill", "low", "high", "mean", "std"):
            value = getattr(self, field)
            if isinstance(value, float | int) and not math.isfinite(value):
                raise UserError(f"{said}: {field} is {value}; allowed: a finite number")
        if self.quantiles and (self.kind == "category" or not ascend(self.quantiles)):
            raise UserError(
                f"{said}: quantiles are {_short(self.quantiles)}; allowed: of numbers, none below the last"
            )
        if (self.mean is None) != (self.std is None):
            raise UserError(f"{said}: mean and std go together")
        if self.std is not None and not self.std > 0:
            raise UserError(f"{said}: std is {self.std}; allowed: a number above 0")
        if self.indicator and self.fill is None:
            raise UserError(f"{said} has an indicator of empty cells, so it needs a fill value")

    def category_of(self, text: str) -> str:
        """The category that a text belongs to: itself, or the bucket of its hash."""
        if not self.hashed or text in BUCKETS:
            return text
        return BUCKETS[int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) % len(BUCKETS)]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of what a model gets of this column."""
        if self.kind == "category":
            values = tuple(f"{self.name}={category}" for category in self.categories)
        else:
            values = (self.name if self.kind == "number" else f"{self.name}.{self.kind}",)
        return (*values, f"{self.name} (missing)") if self.indicator else values

    @property
    def span(self) -> tuple[float, float] | None:
        """From where to where the numbers go, if known."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        return ALWAYS.get(self.kind)

    @property
    def reach(self) -> tuple[float, float] | None:
        """The range and its width on either side: a number beyond is probably in another unit."""
        if self.kind != "number" or self.low is None or self.high is None:
            return None
        wide = (self.high - self.low) or abs(self.high) or 1.0
        return self.low - wide, self.high + wide


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns in the order of a model's inputs, and what is predicted of them.

    columns: what the inputs are made of.
    label: the column to predict.
    classes: its values; none where it is a number.
    na_values: texts that mean an empty cell, beside the usual ones.
    decimal_point: of numbers in a CSV file; auto finds it.
    label_mean, label_std: a number to predict was learned as (label - label_mean) / label_std.
    """

    columns: tuple[Column, ...]
    label: str = ""
    classes: tuple[str, ...] = ()
    na_values: tuple[str, ...] = ()
    decimal_point: DecimalPoint = "auto"
    label_mean: float = 0.0
    label_std: float = 1.0

    def __post_init__(self) -> None:
        if self.decimal_point not in get_args(DecimalPoint):
            raise UserError(f"decimal_point is {self.decimal_point!r}; allowed: auto, a point, a comma")
        if not self.columns:
            raise UserError("a schema needs at least one column")
        seen: set[str] = set()
        for column in self.columns:
            if column.name == self.label:
                raise UserError(f"{self.label!r} is the label, so it cannot be among the columns")
            for name in column.inputs:
                if name in seen:
                    raise UserError(f"two columns would give an input called {name!r}; rename one of them")
                seen.add(name)
        if not (math.isfinite(self.label_mean) and math.isfinite(self.label_std) and self.label_std > 0):
            raise UserError(f"label_std is {self.label_std}; allowed: a number above 0, and a label_mean")
        if len(set(self.classes)) != len(self.classes):
            raise UserError(f"the label {self.label!r} names a class twice")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of all inputs, in order."""
        return tuple(name for column in self.columns for name in column.inputs)

    @property
    def scale(self) -> Scale | None:
        """Mean and standard deviation of every input (of categories and indicators 0 and 1), or None: as they are."""
        if all(column.mean is None for column in self.columns):
            return None
        means, stds = [], []
        for column in self.columns:
            plain = len(column.inputs) - (column.kind != "category")
            of_numbers = column.kind != "category"
            means += [column.mean or 0.0] * of_numbers + [0.0] * plain
            stds += [column.std or 1.0] * of_numbers + [1.0] * plain
        return Scale(tuple(means), tuple(stds))

    # ------------------------------------------------------------------------------------------ sums

    @property
    def places(self) -> list[slice]:
        """Where each column is in a vector of sums: its count, sum and sum of squares, or a count per category."""
        ends = np.cumsum([0, *(len(column.categories) or 3 for column in self.columns)])
        return [slice(a, b) for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]

    def fitted(self, total: Array, *, standardise: bool = True, noisy: bool = False) -> Self:
        """The same columns with fill values and scale of added-up sums (`realign.sums`).

        Of `noisy` ones a mean stays in the column's range, and a deviation within what that range allows.
        """
        if total.shape != (self.places[-1].stop,) or not np.isfinite(total).all():
            raise UserError(f"the sums are not {self.places[-1].stop} finite numbers, as these columns need")
        made = []
        for column, place in zip(self.columns, self.places, strict=True):
            told = total[place]
            if column.kind == "category":
                made.append(replace(column, fill=column.categories[int(told.argmax())]))
                continue
            count, added, squares = told.tolist()
            mean = added / count if count >= 1 else 0.0
            square = squares / count if count >= 1 else 0.0
            variance = square - mean**2
            std = math.sqrt(variance) if variance > NARROW * max(square, NARROW) else 1.0
            if noisy:
                mean, std = _settled(column, mean if count >= 1 else math.nan, variance)
            scale: dict[str, Any] = {"mean": mean, "std": std} if standardise else {"mean": None, "std": None}
            made.append(replace(column, fill=mean, **scale))
        return replace(self, columns=tuple(made))

    # ------------------------------------------------------------------------------------------ plain values

    def plain(self) -> dict[str, Any]:
        """As plain values, for a file or a message; what is as usual is left out."""
        usual = {field.name: field.default for field in fields(Column)}
        columns = []
        for column in self.columns:
            told = {key: value for key, value in asdict(column).items() if value != usual[key]}
            columns.append({key: list(v) if isinstance(v, tuple) else v for key, v in told.items()})
        return {
            "label": self.label,
            "classes": list(self.classes),
            "na_values": list(self.na_values),
            "decimal_point": self.decimal_point,
            **({"label_mean": self.label_mean, "label_std": self.label_std} if self.label_std != 1 else {}),
            "columns": columns,
        }

    @classmethod
    def from_plain(cls, plain: Any, where: str = "the schema") -> Self:
        """Of plain values; a `UserError` that names what is wrong and `where`."""
        told = _fields(cls, plain, where)
        columns = told.get("columns")
        if not isinstance(columns, list | tuple):
            raise UserError(f"{where}: columns is {_short(columns)}; allowed: a list")
        made = [
            Column(**_fields(Column, column, f"{where}: columns[{place}]"))
            for place, column in enumerate(columns)
        ]
        try:
            return cls(**{**told, "columns": tuple(made)})
        except UserError as error:
            raise UserError(f"{where}: {error}") from error

    @classmethod
    def of_inputs(cls, inputs: Sequence[str], classes: Sequence[str] = ()) -> Self:
        """Of nothing but the names of inputs, as older run folders have them: cells must not be empty then."""
        columns: dict[str, list[str]] = {}
        for name in inputs:
            column, equals, category = name.rpartition("=")
            columns.setdefault(column if equals else name, []).extend([category] if equals else [])
        made = [
            Column(name=name, kind="category" if texts else "number", categories=tuple(texts))
            for name, texts in columns.items()
        ]
        return cls(columns=tuple(made), classes=tuple(classes))


def read_schema(path: Path) -> Schema:
    """The schema in a JSON file."""
    try:
        return Schema.from_plain(json.loads(path.read_text(encoding="utf-8")), str(path))
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as a schema: {error}") from error


def differences(ours: Schema, theirs: Schema) -> list[str]:
    """What keeps rows of the one schema from being rows of the other, in a sentence each."""
    found = []
    for what, a, b in (("label", ours.label, theirs.label), ("classes", ours.classes, theirs.classes)):
        if a != b:
            found.append(f"the {what} here: {_short(a)}; there: {_short(b)}")
    mine, other = ({(c.name, c.kind): c for c in schema.columns} for schema in (ours, theirs))
    kinds = [{name: [k for n, k in known if n == name] for name, _ in known} for known in (mine, other)]
    for name in dict.fromkeys([*kinds[0], *kinds[1]]):
        here, there = (known.get(name) for known in kinds)
        if here is None or there is None:
            found.append(f"the column {name!r} is only {'there' if here is None else 'here'}")
        elif here != there:
            found.append(f"the column {name!r} holds {', '.join(here)} here and {', '.join(there)} there")
    for key in mine.keys() & other.keys() if len(found) == 0 else ():
        found += _unlike(mine[key], other[key])
    if not found and list(mine) != list(other):
        place = next(i for i, (a, b) in enumerate(zip(mine, other, strict=True)) if a != b)
        found.append(
            f"column {place + 1} is {list(mine)[place][0]!r} here and {list(other)[place][0]!r} there"
        )
    return found


def union(schemas: Sequence[Schema]) -> Schema:
    """One schema for the tables of several sites: the categories of all, an indicator where any has one.

    Names, kinds and units must agree. Fill values and scale are of no single site: `fitted` makes them of everybody's
    sums.
    """
    first = schemas[0]
    classes = tuple(sorted({label for schema in schemas for label in schema.classes}))
    columns = []
    known = [{(c.name, c.kind): c for c in schema.columns} for schema in schemas]
    for schema in schemas[1:]:
        loose = [replace(s, classes=(), columns=tuple(map(_structure, s.columns))) for s in (first, schema)]
        odd = [d for d in differences(*loose) if not d.startswith("column ")]
        if odd:
            raise UserError(f"the tables cannot be used together: {odd[0]}")
    for column in first.columns:
        same = [each[column.name, column.kind] for each in known]
        hashed = any(c.hashed for c in same)
        lows = [c.low for c in same if c.low is not None]
        highs = [c.high for c in same if c.high is not None]
        columns.append(
            replace(
                column,
                categories=BUCKETS
                if hashed
                else tuple(sorted({text for c in same for text in c.categories})),
                hashed=hashed,
                fill=NO_CATEGORY if column.kind == "category" else 0.0,
                indicator=any(c.indicator for c in same),
                low=min(lows, default=None),
                high=max(highs, default=None),
                quantiles=(),
                mean=None,
                std=None,
            )
        )
    return replace(first, columns=tuple(columns), classes=classes)


def _settled(column: Column, mean: float, variance: float) -> tuple[float, float]:
    """Mean and deviation of a column whose sums have noise; what the noise has drowned counts as evenly spread."""
    low, high = column.span or (0.0, 1.0)
    half = (high - low) / 2 or 1.0
    mean = (low + high) / 2 if math.isnan(mean) else min(max(mean, low), high)
    share = variance / half**2
    return mean, half * math.sqrt(min(max(share, LEAST_SPREAD), 1.0) if share > 0 else 1 / 3)


def _structure(column: Column) -> Column:
    """What all sites must agree on from the start."""
    usual: tuple[str, ...] = ("any",) if column.kind == "category" else ()
    return Column(name=column.name, kind=column.kind, unit=column.unit, categories=usual)


def _unlike(ours: Column, theirs: Column) -> list[str]:
    said = f"the column {ours.name!r}"
    found = []
    for category in [c for c in ours.categories if c not in theirs.categories]:
        found.append(f"{said} has the category {category!r} here and not there")
    for category in [c for c in theirs.categories if c not in ours.categories]:
        found.append(f"{said} has the category {category!r} there and not here")
    for field in ("unit", "fill", "indicator", "quantiles", "mean", "std", "written"):
        a, b = getattr(ours, field), getattr(theirs, field)
        if a != b:
            found.append(f"{said}: {field} is {a!r} here and {b!r} there")
    if not found and ours.categories != theirs.categories:
        found.append(f"{said} has its categories in another order")
    return found


# What a field of a schema may hold in JSON; a whole number is a number, too.
_TYPES: Mapping[Any, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    float: (float, int),
    Kind: (str,),
    DecimalPoint: (str,),
    float | None: (float, int, type(None)),
    float | str | None: (float, int, str, type(None)),
}


def _fields(kind: type, plain: Any, where: str) -> dict[str, Any]:
    """The values for the fields of a dataclass, each of its type."""
    if not isinstance(plain, Mapping):
        raise UserError(f"{where} is {_short(plain)}; allowed: a table with names")
    types = get_type_hints(kind)
    odd = [key for key in plain if key not in types]
    if odd:
        raise UserError(f"{where} has an entry {_short(odd[0])}; allowed: {', '.join(types)}")
    if kind is Column and "name" not in plain:
        raise UserError(f"{where} has no name")
    made: dict[str, Any] = {}
    for key, value in plain.items():
        if types[key] == tuple[str, ...]:
            if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
                raise UserError(f"{where}: {key} is {_short(value)}; allowed: a list of texts")
            made[key] = tuple(value)
        elif types[key] == tuple[float, ...]:
            if not isinstance(value, list | tuple) or not all(type(each) in (float, int) for each in value):
                raise UserError(f"{where}: {key} is {_short(value)}; allowed: a list of numbers")
            made[key] = tuple(value)
        elif key == "columns":
            made[key] = value
        else:
            allowed = _TYPES[types[key]]
            if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
                raise UserError(f"{where}: {key} is {_short(value)}; allowed: {_words(types[key])}")
            try:
                made[key] = float(value) if isinstance(value, int) and bool not in allowed else value
            except OverflowError as error:
                raise UserError(f"{where}: {key} is {_short(value)}; allowed: a finite number") from error
    return made


def _words(kind: Any) -> str:
    if kind is Kind:
        return ", ".join(get_args(Kind))
    words = {str: "a text", bool: "true or false", float: "a number", type(None): "None"}
    return " or ".join(words.get(each, str(each)) for each in get_args(kind) or (kind,))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
