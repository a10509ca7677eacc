"""Settings are keyword arguments: names, types and defaults are read off signatures, for TOML and commands."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union

from covey.errors import UserError

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting: its name, its type and its default (REQUIRED where it has none)."""

    name: str
    type: Any
    default: Any

    @property
    def allowed(self) -> str:
        """The type in words a user can act on."""
        return in_words(self.type)


def settings_of(maker: Callable[..., Any], *, given: Collection[str] = ()) -> dict[str, Setting]:
    """The settings that a function or dataclass takes, without the arguments in `given`, which the program fills in."""
    hints = typing.get_type_hints(maker.__init__ if inspect.isclass(maker) else maker)
    found = {}
    for name, parameter in inspect.signature(maker).parameters.items():
        if name in given or parameter.kind not in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            continue
        default = parameter.default
        if dataclasses.is_dataclass(maker):
            default = _field_default(maker, name, default)
        found[name] = Setting(name=name, type=hints.get(name, Any), default=default)
    return found


def _field_default(maker: Any, name: str, default: Any) -> Any:
    for field in dataclasses.fields(maker):
        if field.name == name and field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
    return default


def checked(where: str, settings: Mapping[str, Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, each of its setting's type; a wrong name or type is one clear sentence."""
    dot = f"{where}." if where else ""
    for name in values:
        if name not in settings:
            raise UserError(unknown(f"{dot}{name}", name, settings))
    result = {}
    for name, value in values.items():
        fits, converted = convert(value, settings[name].type)
        if not fits:
            raise UserError(f"{dot}{name} is {value!r}; allowed: {settings[name].allowed}")
        result[name] = converted
    return result


def unknown(where: str, name: str, known: Collection[str]) -> str:
    """The sentence for a misspelt name, with the nearest right one."""
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{where} is not known; {hint}Allowed: {', '.join(sorted(known)) or 'nothing'}"


def convert(value: Any, wanted: Any) -> tuple[bool, Any]:
    """Whether a TOML value fits a type, and the value as that type (whole numbers pass as floats, lists as tuples)."""
    origin = typing.get_origin(wanted)
    if wanted is Any:
        return True, value
    if origin is Literal:
        return value in typing.get_args(wanted), value
    if origin in (Union, types.UnionType):
        if value is None or value == "none":
            return type(None) in typing.get_args(wanted), None
        for option in typing.get_args(wanted):
            if option is not type(None):
                fits, converted = convert(value, option)
                if fits:
                    return True, converted
        return False, value
    if wanted is bool:
        return isinstance(value, bool), value
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    if wanted is float:
        fits = _number(value) and math.isfinite(value)
        return fits, float(value) if fits else value
    if wanted is str:
        return isinstance(value, str), value
    if origin in (tuple, list, Sequence):
        return _convert_list(value, wanted, origin)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping), value
    return True, value


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _convert_list(value: Any, wanted: Any, origin: Any) -> tuple[bool, Any]:
    if not isinstance(value, list | tuple):
        return False, value
    args = typing.get_args(wanted)
    fixed = origin is tuple and not (len(args) == 2 and args[1] is Ellipsis)
    if fixed and len(value) != len(args):
        return False, value
    kinds = args if fixed else [args[0]] * len(value)
    parts = [convert(part, kind) for part, kind in zip(value, kinds, strict=True)]
    whole = [part for _, part in parts]
    return all(fits for fits, _ in parts), whole if origin is list else tuple(whole)


def in_words(wanted: Any) -> str:
    """A type as a user reads it."""
    origin = typing.get_origin(wanted)
    if origin is Literal:
        return ", ".join(map(str, typing.get_args(wanted)))
    if origin in (Union, types.UnionType):
        return " or ".join("none" if a is type(None) else in_words(a) for a in typing.get_args(wanted))
    if origin in (tuple, list, Sequence):
        return f"a list of {in_words(typing.get_args(wanted)[0])}"
    if origin in (dict, Mapping):
        return "a table"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(
        wanted, "a value"
    )
