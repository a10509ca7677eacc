"""`covey methods`, `datasets`, `partitions`, `shifts`, `models`: what there is, and with a name its settings."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from covey.data.sources import said_size
from covey.errors import UserError
from covey.settings.registry import Registry
from covey.settings.signatures import Setting, description
from covey.terminal import Console


def methods(name: str | None = None) -> None:
    """List the methods by the question that they answer; with a name, its settings."""
    from covey.settings.catalogue import FAMILIES, METHODS
    from covey.settings.registry import registered

    marks = registered()["method"]
    if name is not None:
        show("method", METHODS, name)
        if name in marks and marks[name].paper:
            Console().print(f"\npaper  {marks[name].paper}", soft_wrap=True)
        return
    family_of = {method: mark.family for method, mark in marks.items()}
    for family, question in (*FAMILIES.items(), ("", "Others")):
        if listed := {method: METHODS[method] for method in METHODS if family_of.get(method, "") == family}:
            Console().print(Text(question, style="bold"))
            show_all(listed, indent=2)


def parts(kind: str | None = None, name: str | None = None) -> None:
    """List the parts that a method can be composed of; with a question, its parts; with a name, its settings.

    Args:
        kind: only parts that answer this question.
    """
    from covey.settings.catalogue import PARTS
    from covey.settings.parts import QUESTIONS, part_settings
    from covey.settings.signatures import unknown

    if kind is not None and kind not in PARTS:
        raise UserError(unknown(f"parts {kind!r}", kind, PARTS))
    if kind is not None and name is not None:
        show_one(f"method.{kind}", name, PARTS[kind].find(name), part_settings(kind, name))
        return
    for each in PARTS if kind is None else [kind]:
        Console().print(Text.assemble((each, "bold"), f": {QUESTIONS[each]}"))
        show_all(PARTS[each], indent=2)


def datasets(words: list[str] | None = None, *, from_: str | None = None) -> None:
    """List the data sets; with a name, its settings; `covey datasets get NAME` downloads one.

    Args:
        words: NAME shows this one; get NAME... gets them from their official places.
        from_: with get: an address that has the same files.
    """
    from covey.data.sources import SOURCES
    from covey.settings.catalogue import DATASETS

    name, *more = words or ("",)
    if name == "get":
        get_datasets(more, from_)
        return
    if more or from_ is not None:
        raise UserError("give one name to see, or get and the names to download (covey datasets get mnist)")
    show("data", DATASETS, name or None)
    if name in SOURCES:
        source = SOURCES[name]
        place = source.place()
        there = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
        got = f"get    covey datasets get {name} ({said_size(source.size)})\n" if source.remote else ""
        Console().print(
            f"\nfiles  {source.files}\nfrom   {source.origin}\n{got}"
            f"in     {place} ({', '.join(there) or 'nothing is there yet'})",
            soft_wrap=True,
        )


def get_datasets(names: list[str], at: str | None) -> None:
    """Downloads data sets, with a bar for each file."""
    from covey.data.download import get, gettable
    from covey.terminal import console, download_bars

    if not names:
        raise UserError("covey datasets get needs a name, such as mnist")
    if at is not None and len(names) > 1:
        raise UserError("--from is the address of one data set; get one at a time")
    for name in names:
        gettable(name)
    for name in names:
        with download_bars() as watch:
            place = get(name, at=at, watch=watch)
        console.print(f"{name}: in {place}, as its publisher gives it (SHA-256)", soft_wrap=True)


def partitions(name: str | None = None) -> None:
    """List the partitions (who gets which data); with a name, its settings."""
    from covey.settings.catalogue import PARTITIONS

    show("partition", PARTITIONS, name)


def shifts(name: str | None = None) -> None:
    """List the shifts (how clients' data differ beside their labels); with a name, its settings."""
    from covey.settings.catalogue import SHIFTS

    show("shift", SHIFTS, name)


def models(name: str | None = None) -> None:
    """List the networks; with a name, its settings."""
    from covey.settings.catalogue import MODELS

    show("model", MODELS, name)


def show(table_name: str, registry: Registry[Any], name: str | None) -> None:
    """One line for each entry, or one entry in full."""
    from covey.runs.sections import settings_in

    if name is None:
        show_all(registry)
        return
    maker = registry.find(name)
    show_one(table_name, name, maker, settings_in(table_name, maker))


def show_all(registry: Mapping[str, Callable[..., Any]], indent: int = 0) -> None:
    """One line for each entry."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, indent))
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it is")
    for key, maker in registry.items():
        table.add_row(key, Text(first_sentence(maker)))
    Console().print(table)


def show_one(table_name: str, name: str, maker: Callable[..., Any], settings: Mapping[str, Setting]) -> None:
    """One entry in full."""
    from covey.settings.signatures import REQUIRED

    console = Console()
    console.print(Text.assemble((name, "bold"), "  ", "\n\n".join(description(maker)), "\n"))
    if not settings:
        console.print("It has no settings.")
        return
    table = Table(
        title=f"settings in the table [{table_name}]", title_justify="left", box=None, pad_edge=False
    )
    for column in ("setting", "default", "allowed", "what it is"):
        table.add_column(column, no_wrap=column == "setting")
    for key, setting in settings.items():
        default = "required" if setting.default is REQUIRED else as_in_toml(setting.default)
        table.add_row(key, Text(default), Text(setting.allowed), Text(setting.help))
    console.print(table)


def first_sentence(maker: Callable[..., Any]) -> str:
    return description(maker)[0].split(". ")[0].split("; ")[0].rstrip(".") + "."


def as_in_toml(value: object) -> str:
    """A default as a user would write it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)
