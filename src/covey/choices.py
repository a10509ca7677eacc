"""A setting that names something in a registry: by its name, or by a table with its name and its settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from covey.errors import UserError
from covey.registry import Registry
from covey.settings import REQUIRED, Setting, checked, settings_of
from covey.tables import shown

Table = dict[str, Any]


def whole_table(
    where: str,
    value: Any,
    registry: Registry[Any],
    settings_for: Callable[[Any], Mapping[str, Setting]] = settings_of,
) -> Table:
    """The table with its name and every setting written out; raises one sentence for anything wrong."""
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or "name" not in table:
        raise UserError(
            f"{where} is {shown(value)}; allowed: the name of a {registry.kind}, or a table with its name"
        )
    settings = settings_for(registry.find(table["name"], f"{where} = {table['name']!r}"))
    own = checked(where, settings, {key: part for key, part in table.items() if key != "name"})
    for name, setting in settings.items():
        if name not in own and setting.default is REQUIRED:
            raise UserError(f"{where}.{name} is missing; allowed: {setting.allowed}")
    return {"name": table["name"], **{name: own.get(name, s.default) for name, s in settings.items()}}


def entries_of(where: str, value: Any) -> list[Any]:
    """A list of names and tables; a single one counts as a list."""
    entries = [value] if isinstance(value, str | Mapping) else value
    if not isinstance(entries, list | tuple):
        raise UserError(f"{where} is {shown(value)}; allowed: a list of names and tables")
    return list(entries)


@dataclass(frozen=True, eq=False)
class SeveralOf:
    """Marks a setting that is a list of things of one kind; arguments in `given` are filled in by the program."""

    registry: Registry[Any]
    given: Collection[str] = ()

    def read(self, where: str, value: Any) -> list[Table]:
        return [
            whole_table(
                f"{where}[{at}]", entry, self.registry, lambda made: settings_of(made, given=self.given)
            )
            for at, entry in enumerate(entries_of(where, value))
        ]

    def __str__(self) -> str:
        return f"a list of {self.registry.kind}s: {', '.join(self.registry) or 'your own'}"
