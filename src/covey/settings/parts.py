"""The parts of a method by the question that they answer, for methods that are composed in a file.

A part without settings is a function of the round. Any other entry makes a part from its settings: a frozen dataclass,
or a function with keyword arguments. Arguments in `FILLED_IN` are filled in by the program.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from covey.errors import UserError
from covey.settings.catalogue import PARTS
from covey.settings.choices import Table, entries_of, whole_table
from covey.settings.signatures import FILLED_IN, REQUIRED, Setting, settings_of

QUESTIONS = {
    "group": "who is alike",
    "bank": "which models there are",
    "select": "who works",
    "send": "which models go out, to be trained or to be used",
    "local": "what a client does",
    "mix": "how the replies become the new models: a matrix",
    "combine": "the same where no matrix can say it",
    "update": "what the server adds",
    "after": "what is remembered of a round; what other parts need is added automatically",
}


def is_part(found: Callable[..., Any]) -> bool:
    """Whether this is a part itself, a function of the round, and not what makes one."""
    return not inspect.isclass(found) and next(iter(inspect.signature(found).parameters), "") == "now"


def part_settings(kind: str, name: object, where: str = "") -> dict[str, Setting]:
    """The settings that a user can give the part."""
    return settings_of_part(PARTS[kind].find(name, where))


def settings_of_part(found: Callable[..., Any]) -> dict[str, Setting]:
    return {} if is_part(found) else settings_of(found, given=FILLED_IN)


def make_part(kind: str, table: Mapping[str, Any], given: Mapping[str, object]) -> Any:
    """The part that a complete table describes."""
    found = PARTS[kind].find(table["name"])
    if is_part(found):
        return found
    wanted = inspect.signature(found).parameters
    settings = {name: value for name, value in table.items() if name != "name"}
    filled = {name: value for name, value in given.items() if name in wanted}
    if any(name in wanted and name not in filled and wanted[name].default is REQUIRED for name in FILLED_IN):
        raise UserError(f"{kind} {table['name']} builds on what is sent: use it for serve")
    try:
        return found(**filled, **settings)
    except UserError as mistake:
        raise UserError(f"{kind} {table['name']}: {mistake}") from mistake


@dataclass(frozen=True)
class PartOf:
    """Marks a setting that names a part: text, or a table with its name and settings; `auto` is also allowed."""

    kind: str
    auto: bool = False

    def read(self, where: str, value: Any) -> Table | str | None:
        """The part as a table with every setting written out."""
        if value is None or value == "none":
            return None
        if self.auto and value == "auto":
            return "auto"
        return whole_table(where, value, PARTS[self.kind], settings_of_part)

    def __str__(self) -> str:
        return f"{'auto, or ' if self.auto else ''}a part (see covey parts {self.kind})"


GroupPart = Annotated[Any, PartOf("group")]


@dataclass(frozen=True)
class PartsOf:
    """Marks a setting that is a list of parts."""

    kind: str

    def read(self, where: str, value: Any) -> list[Table]:
        read = [
            PartOf(self.kind).read(f"{where}[{at}]", entry)
            for at, entry in enumerate(entries_of(where, value))
        ]
        return [table for table in read if isinstance(table, dict)]

    def __str__(self) -> str:
        return f"a list of parts (see covey parts {self.kind})"
