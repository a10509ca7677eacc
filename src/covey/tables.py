"""What a file or a command may hold at all: nothing deeper or larger than anybody means."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from covey.errors import UserError

DEEPEST = 8  # tables and lists inside one another
LARGEST = 2**63 - 1  # TOML's own bound on whole numbers
LONGEST = 1000  # characters of a text
MOST = 100_000  # entries of a list or a table


def check_tables(tables: Any, where: str = "", depth: int = 0) -> None:
    """Refuses, in one sentence with the place, what no setting can take."""
    if depth > DEEPEST:
        raise UserError(
            f"{where[:60]} is nested too deep; allowed: {DEEPEST} tables and lists inside one another"
        )
    if isinstance(tables, Mapping | list | tuple) and len(tables) > MOST:
        raise UserError(f"{where} has {len(tables):,} entries; allowed: at most {MOST:,}")
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


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, 80, 80

    def repr_int(self, x: int, level: int) -> str:  # noqa: ARG002
        return repr(x) if abs(x) < 10**30 else "a number of more than 30 digits"


def shown(value: Any) -> str:
    """A value as a sentence shows it: what Python would print, but never long."""
    return _Short().repr(value)
