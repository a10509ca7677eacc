"""The tables of a TOML file: reading them, setting single values, and what they may hold at all."""

import copy
import reprlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covey.errors import UserError
from covey.settings.own_code import full_name
from covey.terminal import is_text, printable

DEEPEST = 8  # tables and lists inside one another
LARGEST = 2**63 - 1  # TOML's own bound on whole numbers
LONGEST = 1000  # characters of a text
MOST = 100_000  # entries of a list or a table
MOST_BYTES = 4_000_000  # of a file


def check_tables(tables: Any, where: str = "", depth: int = 0) -> None:
    """Refuses, in one sentence with the place, what no setting can take."""
    if depth > DEEPEST:
        raise UserError(
            f"{where[:60]} is nested too deep; allowed: {DEEPEST} tables and lists inside one another"
        )
    if isinstance(tables, Mapping | list | tuple) and len(tables) > MOST:
        raise UserError(f"{where or 'the file'} has {len(tables):,} entries; allowed: at most {MOST:,}")
    if isinstance(tables, Mapping):
        for key, part in tables.items():
            if not isinstance(key, str):
                raise UserError(f"{where or 'the configuration'} has the key {shown(key)}; allowed: text")
            check_tables(part, f"{where}.{key}" if where else key, depth + 1)
    elif isinstance(tables, list | tuple):
        for part in tables:
            check_tables(part, where, depth + 1)
    elif isinstance(tables, int) and not -LARGEST <= tables <= LARGEST:
        raise UserError(f"{where} is {shown(tables)}; allowed: whole numbers of 64 bits")
    elif isinstance(tables, str) and len(tables) > LONGEST:
        raise UserError(f"{where} is {shown(tables)}; allowed: at most {LONGEST:,} characters")
    elif isinstance(tables, str) and not is_text(tables):
        raise UserError(f"{where} is {printable(tables)!r}; allowed: text in UTF-8")


def plain_tables(tables: Any) -> Any:
    """A copy of the tables in which NumPy's numbers and arrays, as programs have them, are Python's."""
    if isinstance(tables, Mapping):
        return {key: plain_tables(part) for key, part in tables.items()}
    if isinstance(tables, list | tuple):
        return type(tables)(plain_tables(part) for part in tables)
    if type(tables).__module__ == "numpy" and hasattr(tables, "tolist"):
        return tables.tolist()
    return copy.deepcopy(tables)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, 80, 80

    def repr_int(self, x: int, level: int) -> str:  # noqa: ARG002
        return repr(x) if abs(x) < 10**30 else "a number of more than 30 digits"


def shown(value: Any) -> str:
    """A value as a sentence shows it: what Python would print, but never long."""
    return _Short().repr(value)


def read_tables(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UserError(f"{path} is too long for a run's settings; allowed: at most {MOST_BYTES:,} bytes")
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
        tables: dict[str, Any] = with_full_names(tomllib.loads(text), path.parent)
        return tables
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error


# Tables that are named by what they choose: `partition = "iid"` is short for `partition = {name = "iid"}`.
NAMED = ("data", "model", "method", "partition", "shift", "robust", "compress")


def named_tables(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with each bare name written out as a table."""
    return {
        key: {"name": value} if key in NAMED and isinstance(value, str) else value
        for key, value in tables.items()
    }


def on_top(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """The tables merged: inside a table, later values replace earlier ones."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = {**result[key], **value} if both else value
    return result


def with_full_names(value: Any, base: Path) -> Any:
    """The tables with every `file.py:name` in them, which may lie beside the TOML file, by its absolute path."""
    if isinstance(value, dict):
        return {full_name(key, base): with_full_names(part, base) for key, part in value.items()}
    if isinstance(value, list):
        return [with_full_names(part, base) for part in value]
    return full_name(value, base) if isinstance(value, str) else value


def with_setting(tables: dict[str, Any], assignment: str) -> None:
    """Applies `a.b=c` to the tables; the value is read as TOML, and as text where it is none."""
    key, equals, text = assignment.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(names):
        raise UserError(f"setting {assignment!r} must look like table.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also of numbers with too many digits, and of thousands of brackets
        value = text.strip()
    table = tables
    for name in names[:-1]:
        if isinstance(table.get(name), str) and names[0] in NAMED:  # select = "haccs" is short for a table
            table[name] = {"name": table[name]}
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise UserError(f"setting {assignment!r}: {name} is not a table")
    table[names[-1]] = value
