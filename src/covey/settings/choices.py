"""A setting that names something in a registry: by its name, or by a table with its name and its settings."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from covey.errors import UserError
from covey.settings.registry import Registry
from covey.settings.signatures import REQUIRED, Setting, checked, reader_of, settings_of
from covey.settings.toml import shown

Table = dict[str, Any]


def whole_table(
    where: str,
    value: Any,
    registry: Registry[Any],
    settings_for: Callable[[Any], Mapping[str, Setting]] = settings_of,
) -> Table:
    """The table with its name and every setting written out; anything wrong is one sentence."""
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or "name" not in table:
        raise UserError(
            f"{where} is {shown(value)}; allowed: the name of a {registry.kind}, or a table with its name"
        )
    settings = settings_for(registry.find(table["name"], f"{where} = {table['name']!r}"))
    own = complete(where, settings, own_settings(table))
    return {"name": registry.called(table["name"]), **own}


def complete(where: str, settings: Mapping[str, Setting], values: Any) -> Table:
    """The values with defaults for the rest; a missing one that has no default is one sentence."""
    if not isinstance(values, Mapping):
        raise UserError(f"{where} is {shown(values)}; allowed: a table with {', '.join(settings)}")
    given = checked(where, settings, values)
    for name, setting in settings.items():
        if name not in given:
            if setting.default is REQUIRED:
                raise UserError(f"{where}.{name} is missing; allowed: {setting.allowed}")
            reader = reader_of(setting.type)
            given[name] = reader.read(f"{where}.{name}", setting.default) if reader else setting.default
    return {name: given[name] for name in settings}


@dataclass(frozen=True, eq=False)
class OneOf:
    """Marks a setting that names one thing of a kind; arguments in `given` are filled in by the program.

    A name alone stays a name, so that what has no settings is written as short as a user writes it.
    """

    registry: Registry[Any]
    given: Collection[str] = ()

    def read(self, where: str, value: Any) -> Table | str:
        table = whole_table(where, value, self.registry, lambda made: settings_of(made, given=self.given))
        name: str = table["name"]
        return table if len(table) > 1 else name

    def made(self, where: str, value: Any) -> Callable[..., Any]:
        """The thing with its settings filled in; what is in `given` is left to the caller."""
        table = self.read(where, value)
        settings = {} if isinstance(table, str) else own_settings(table)
        return partial(
            self.registry.find(table if isinstance(table, str) else table["name"], where), **settings
        )

    def __str__(self) -> str:
        return ", ".join((*self.registry, "your own"))


class OneOrNone(OneOf):
    """The same, where it may also be none."""

    def read(self, where: str, value: Any) -> Any:
        return None if value is None or value == "none" else super().read(where, value)


def own_settings(table: Mapping[str, Any], common: type | None = None) -> Table:
    """A table without its name and without the settings common to its section."""
    skip = {"name", *(field.name for field in fields(common))} if common else {"name"}
    return {key: value for key, value in table.items() if key not in skip}


def without_unset(table: Table, *names: str) -> Table:
    """The table without those of these keys that are not set, so that files and messages without them do not change."""
    return {key: value for key, value in table.items() if key not in names or value}


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
