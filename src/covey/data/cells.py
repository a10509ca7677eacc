"""The cells of a column: what they are, as numbers, dates or words, and where they are none of these."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from covey.arrays import Array
from covey.errors import UserError

NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
WITH_COMMA = r"^\s*[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?([eE][+-]?\d+)?\s*$"  # 3,14 and 1.234,5
COMMA_OF_THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*$"  # 1,234: a decimal comma or not?
ISO = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")
LARGEST = float(np.finfo(np.float32).max)
EXACT = 2**53  # whole numbers beyond are not told apart as floating-point numbers


def is_text_column(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_date(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind))


def tidied(column: pa.ChunkedArray, na_values: Sequence[str] = ()) -> pa.ChunkedArray:
    """The same cells in a plain type, where NaN, blank texts and `na_values` are empty cells."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    if is_text_column(column.type):
        bare = pc.utf8_trim_whitespace(column)
        empty = pc.equal(bare, "")
        if na_values:
            empty = pc.or_(empty, pc.is_in(bare, value_set=pa.array(na_values, type=bare.type)))
        column = pc.if_else(empty, None, column) if pc.any(empty).as_py() else column
    elif na_values and is_number(column.type):
        numbers = [float(text) for text in na_values if _is_float(text)]
        if numbers:
            empty = pc.is_in(column.cast(pa.float64(), safe=False), value_set=pa.array(numbers, pa.float64()))
            column = pc.if_else(empty, None, column)
    return column


def words_of(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Categories as texts: true and false, whole numbers without a point."""
    if is_text_column(column.type):
        return column
    try:
        return column.cast(pa.string())
    except pa.ArrowException as error:
        raise not_for_models(column, name) from error


def numbers_of(column: pa.ChunkedArray, name: str) -> Array:
    """Numbers as floating-point numbers, also from texts, with NaN for empty cells."""
    if is_text_column(column.type):
        column = _parsed(column, name)
    elif not (is_number(column.type) or pa.types.is_boolean(column.type) or pa.types.is_null(column.type)):
        raise not_for_models(column, name)
    if column.type in (pa.int64(), pa.uint64()):
        beyond = pc.greater(column, pa.scalar(EXACT, column.type))
        if column.type == pa.int64():
            beyond = pc.or_(beyond, pc.less(column, pa.scalar(-EXACT, column.type)))
        row = pc.index(beyond, True).as_py()
        if row >= 0:
            raise UserError(
                f"the column {name!r} holds {column[row].as_py()} in row {row + 1}; whole numbers beyond 2^53 cannot "
                "be told apart as numbers: leave the column out (exclude), or name it in categories"
            )
    found: Array = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    large = np.abs(found) > LARGEST
    if large.any():
        row = int(large.argmax())
        what = "infinity" if np.isinf(found[row]) else f"{found[row]:g}, which is too large,"
        raise UserError(f"the column {name!r} holds {what} in row {row + 1}")
    return found


def stray_text(column: pa.ChunkedArray, pattern: str = NUMBER) -> tuple[int, str] | None:
    """The first text that is no number: its place and itself."""
    odd = pc.invert(pc.match_substring_regex(column, pattern))
    row = pc.index(odd, True).as_py()
    return None if row < 0 else (row, column[row].as_py())


def uses_commas(texts: pa.Array | pa.ChunkedArray, name: str) -> bool:
    """Whether these texts are numbers with decimal commas; a `UserError` where 1,234 may be one or another number."""
    comma = pc.match_substring_regex(texts, WITH_COMMA)
    if not (pc.all(comma).as_py() and pc.any(pc.match_substring(texts, ",")).as_py()):
        return False
    commas = texts.filter(pc.match_substring(texts, ","))
    if pc.all(pc.match_substring_regex(commas, COMMA_OF_THOUSANDS)).as_py():
        raise UserError(
            f"the column {name!r} holds {commas[0].as_py()!r}, which is one number with a decimal comma and another "
            "with a comma for thousands: say which (decimal_point), or write the numbers without it"
        )
    return True


def with_points(column: pa.ChunkedArray, decimal_point: str = ",") -> pa.ChunkedArray:
    """1.234,5 as 1234.5, or where the point is the decimal point, 1,234.5."""
    thousands = "." if decimal_point == "," else ","
    return pc.replace_substring(pc.replace_substring(column, thousands, ""), ",", ".")


def has_thousands(texts: pa.ChunkedArray, decimal_point: str) -> bool:
    """Whether these texts are numbers, some of them with a mark for thousands."""
    mark = "." if decimal_point == "," else ","
    pattern = rf"^\s*[+-]?\d{{1,3}}([{mark}]\d{{3}})*([{decimal_point}]\d+)?\s*$"
    return bool(
        pc.all(pc.match_substring_regex(texts, pattern)).as_py()
        and pc.any(pc.match_substring(texts, mark)).as_py()
    )


def _parsed(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    stray = stray_text(column)
    if stray and uses_commas(column.drop_null(), name):
        column, stray = with_points(column), None
    if stray:
        raise UserError(f"the column {name!r} holds {stray[1]!r} in row {stray[0] + 1}, which is no number")
    return pc.utf8_trim_whitespace(column).cast(pa.float64())


def dates_of(column: pa.ChunkedArray, name: str, written: str = "") -> pa.ChunkedArray:
    """Dates, also from texts: written as in ISO 8601, or as the format says."""
    if is_date(column.type) or pa.types.is_null(column.type):
        return column
    if not is_text_column(column.type):
        raise UserError(f"the column {name!r} holds {column.type}; in training it held dates")
    made = parsed_dates(column, written)
    wrong = pc.and_(pc.is_null(made), pc.is_valid(column))
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        raise UserError(
            f"the column {name!r} holds {column[row].as_py()!r} in row {row + 1}, which is no date written as "
            f"{written or 'YYYY-MM-DD'}"
        )
    return made


def parsed_dates(column: pa.ChunkedArray, written: str) -> pa.ChunkedArray:
    """Texts as dates; what is none is empty, also the 31st of February."""
    text = pc.utf8_trim_whitespace(column)
    if not written:
        text = pc.replace_substring(pc.replace_substring_regex(text, r"(\.\d+)?Z?$", ""), "T", " ")
    found = None
    for form in [written] if written else ISO:
        made = pc.strptime(text, format=form, unit="s", error_is_null=True)
        again = pc.strftime(made, format=form)
        same = pc.equal(*(pc.replace_substring_regex(t, r"(^|\D)0+(\d)", r"\1\2") for t in (again, text)))
        made = pc.if_else(same, made, None)
        found = made if found is None else pc.coalesce(found, made)
    return found


def date_parts(column: pa.ChunkedArray, kind: str) -> Array:
    """One part of every date, with NaN for an empty cell."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_time(column.type):
        part = pc.hour(column) if kind == "hour" else pc.multiply(pc.hour(column), 0)
    elif kind == "hour" and pa.types.is_date(column.type):
        part = pc.multiply(pc.year(column), 0)
    else:
        part = {"year": pc.year, "month": pc.month, "weekday": pc.day_of_week, "hour": pc.hour}[kind](column)
    return np.asarray(part.cast(pa.float64()).to_numpy(), dtype=np.float64)


def not_for_models(column: pa.ChunkedArray, name: str) -> UserError:
    """The sentence for structs, lists, bytes and the like."""
    return UserError(
        f"the column {name!r} holds {_short(column.type)}, which is neither numbers nor texts nor dates: leave it out "
        "(exclude), or make columns of its parts"
    )


def _short(kind: pa.DataType) -> str:
    return str(kind) if len(str(kind)) <= 60 else f"{str(kind)[:57]}..."


def _is_float(text: str) -> bool:
    try:
        return np.isfinite(float(text))  # type: ignore[no-any-return]
    except ValueError:
        return False


def some(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(name or "''" for name in names[:most]) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )
