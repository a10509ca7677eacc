"""Commands read off functions, as settings are: what stands before `*` are arguments, what follows it are options, and
the block `Args:` of the docstring has the lines of help."""

import functools
import inspect
import json
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from covey.errors import UserError
from covey.settings.ranges import Range
from covey.settings.signatures import Setting, about_settings, description, settings_of

Port = Annotated[int, Range(1, 65535)]
# What means the same in every command that has it.
COMMON = {
    "file": "A TOML file with the run's settings.",
    "method": "The method (see covey methods).",
    "out": "The folder to write. [default: runs/NAME-TIME]",
    "name": "Show this one's settings.",
    "seeds": "Run everything with this many seeds: the seed itself and the next ones.",
    "processes": "The most runs at once. [default: what memory and cores allow]",
    "resume": "Resume the study in this folder.",
    "changed_code": "With --resume: continue even if your own code or data have changed.",
    "certs": "The folder that covey certs made.",
    "insecure": "No TLS and no keys; only on loopback.",
}


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """Who the clients are and what they hold: options that stand for settings.

    Args:
        dataset: the data set (see covey datasets).
        data: a table of your own (CSV, Parquet, Excel): one row per sample.
        label: with --data: the column to predict.
        client: with --data: the column that says whose row it is.
        clients: how many clients (data.clients).
        partition: who gets which data (partition.name; see covey partitions).
        alpha: how even the partition is; small is skewed (partition.alpha).
        set_: any setting: table.key=value. Repeatable.
        seed: the seed of everything random.
    """

    dataset: str | None = None
    data: Path | None = None
    label: str | None = None
    client: str | None = None
    clients: int | None = None
    partition: str | None = None
    alpha: float | None = None
    set_: list[str] | None = None
    seed: int | None = None

    def settings(self) -> list[str]:
        """As for --set; what --set itself says comes last."""
        said = {**self.own_table(), **self.short()}
        # as JSON, so that a column called 1 or true is a text
        found = [
            f"{key}={json.dumps(value, ensure_ascii=False)}"
            for key, value in said.items()
            if value is not None
        ]
        return [*found, *(self.set_ or ())]

    def short(self) -> dict[str, Any]:
        """The short options by the settings that they stand for."""
        return {
            "seed": self.seed,
            "data.clients": self.clients,
            "partition.name": self.partition,
            "partition.alpha": self.alpha,
        }

    def own_table(self) -> dict[str, Any]:
        """What --data, --label and --client stand for: a table of one's own in place of a data set with a name."""
        if self.data is None:
            if self.label or self.client:
                raise UserError("--label and --client name columns of a file: add --data FILE.csv")
            return {"data.name": self.dataset}
        if self.dataset is not None:
            raise UserError(f"--data is {self.data} and --dataset is {self.dataset}; give one of them")
        if self.label is None and not any(one.startswith("data.label=") for one in self.set_ or ()):
            raise UserError(f"--label is missing: which column of {self.data} is to be predicted")
        columns = {"data.label": self.label, "data.client": self.client}
        return {"data.name": "table", "data.path": str(self.data), **columns}


@dataclass(frozen=True, kw_only=True)
class RunOptions(FleetOptions):
    """The same, and how they train.

    Args:
        lr: the clients' learning rate (train.lr).
        rounds: how many rounds.
    """

    lr: float | None = None
    rounds: int | None = None

    def short(self) -> dict[str, Any]:
        return {**super().short(), "rounds": self.rounds, "train.lr": self.lr}


def add(app: typer.Typer, *functions: Callable[..., None], name: str | None = None) -> None:
    """Makes commands of functions, called as these are."""
    for function in functions:
        app.command(name, help="\n\n".join(description(function)))(as_command(function))


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """The function with typer's marks in its signature; `set_` is the option --set, a flag has no opposite.

    A parameter whose type is a dataclass of options stands for all of these.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    lines = COMMON | about_settings(function)
    for name, setting in settings_of(function).items():
        own = inspect.signature(function).parameters[name]
        if isinstance(setting.type, type) and is_dataclass(setting.type):
            groups[name] = setting.type
            parameters += [
                in_signature(one, own, one.help or COMMON[one.name])
                for one in settings_of(setting.type).values()
            ]
        else:
            parameters.append(in_signature(setting, own, lines[name]))

    @functools.wraps(function)
    def command(**options: Any) -> None:
        given = [options.pop(p.name) for p in parameters if p.kind is not p.KEYWORD_ONLY]
        for name, group in groups.items():
            options[name] = group(**{field.name: options.pop(field.name) for field in fields(group)})
        function(*given, **options)

    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def in_signature(setting: Setting, own: inspect.Parameter, line: str) -> inspect.Parameter:
    """One parameter as typer reads it: its type, the line of help, the ends of a range, the name of an option."""
    kind, limits = without_range(setting.type)
    called = setting.name.rstrip("_")
    line = escape(line[0].upper() + line[1:])  # [default: ...] is no markup
    settings: dict[str, Any] = {"help": line, "min": limits.least, "max": limits.most}
    if own.kind is own.KEYWORD_ONLY:
        named = called != setting.name or (kind is bool and setting.default is False)
        mark = typer.Option(*([f"--{called.replace('_', '-')}"] if named else []), **settings)
    else:
        mark = typer.Argument(metavar=called.upper() if called != setting.name else None, **settings)
    return inspect.Parameter(
        setting.name, own.kind, default=setting.default, annotation=Annotated[kind, mark]
    )


def without_range(kind: Any) -> tuple[Any, Range]:
    """A type, also one that may be None, and the range that it is marked with."""
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is Annotated:
        return parts[0], next((mark for mark in parts[1:] if isinstance(mark, Range)), Range())
    if type(None) in parts and len(parts) == 2:
        inner, limits = without_range(parts[0])
        return inner | None, limits
    return kind, Range()
