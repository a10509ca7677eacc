"""Settings are keyword arguments: names, types, ranges and defaults are read off signatures.

One check for all of them, whether they come from a file, a command or Python, and one wording:
`NAME is VALUE; allowed: ...`. Ranges are declared with the type (`covey.settings.ranges`).
"""

import dataclasses
import difflib
import functools
import inspect
import numbers
import re
import types
import typing
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    runtime_checkable,
)

from covey.errors import UserError
from covey.settings.spelling import spelled
from covey.settings.toml import shown

REQUIRED = inspect.Parameter.empty
# What a number may be in size where its range says nothing else: more is a typing error.
LARGEST: dict[Any, int] = {int: 100_000_000, float: 1_000_000_000}
# What the program gives a part of a method. train: the settings of local training. step: what clients are asked to do.
# send: which models they would get. exchange: the mix over a topology.
PARTS_FILLED_IN = ("step", "send", "exchange")  # whether they fit is said by what parts need and give
FILLED_IN = ("train", *PARTS_FILLED_IN)
# What these settings are wherever nothing else is said of them.
EVERYWHERE = {
    "per_round": "how many clients work in a round.",
    "weighting": "what a reply counts by: its samples, equally, or its batches.",
    "scaling": "unit is [0, 1]; half is (x - 0.5) / 0.5; standard is by mean and standard deviation.",
    "augment": "crop-flip shows every training picture cropped and mirrored at random; none: as it is.",
    "n_shared": "how many leading tensors are common to all clusters.",
    "widths": "of the device classes; client i is of class i modulo their number.",
    "at_once": "how many clients work at the same time.",
    "vocabulary": "the most words or pieces that are told apart.",
    "tokeniser": "a tokenizer.json with the pieces; none: made of the training parts.",
    "minimum": "the fewest samples that a client gets.",
}
Maker = TypeVar("Maker", bound=Callable[..., Any])
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting: its name, its type, its default (REQUIRED where it has none), and one line about it."""

    name: str
    type: Any
    default: Any
    help: str = ""

    @property
    def allowed(self) -> str:
        """The type in words a user can act on."""
        return in_words(self.type)


def settings_of(maker: Callable[..., Any], *, given: Collection[str] = ()) -> dict[str, Setting]:
    """The settings that a function or dataclass takes, without the arguments in `given`, which the program fills in."""
    signature, hints, lines = _read(maker)
    inside = inline_parts(maker)
    found: dict[str, Setting] = {}
    for name, parameter in signature.parameters.items():
        if name in given or parameter.kind not in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            continue
        if whole := inside.get(name):  # its settings are this one's
            found |= {
                each: setting
                for each, setting in settings_of(whole, given=(*given, *FILLED_IN)).items()
                if each not in signature.parameters
            }
            continue
        default = parameter.default
        if dataclasses.is_dataclass(maker):
            default = _field_default(maker, name, default)
        about = lines.get(name) or EVERYWHERE.get(name, "")
        found[name] = Setting(name=name, type=hints.get(name, Any), default=default, help=about)
    return found


@functools.lru_cache(maxsize=1024)
def _read(maker: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any], dict[str, str]]:
    """What is read off a function or dataclass, once: signature, types, lines of help."""
    return inspect.signature(maker), _hints(maker), about_settings(maker)


def _hints(maker: Callable[..., Any]) -> dict[str, Any]:
    """The types of all arguments; those of a dataclass as the module reads them that declared each."""
    if not inspect.isclass(maker):
        return typing.get_type_hints(maker, include_extras=True)
    try:
        return typing.get_type_hints(
            maker if dataclasses.is_dataclass(maker) else maker.__init__, include_extras=True
        )
    except NameError:  # a field whose type is imported for the type checker only, and that is no setting
        return typing.get_type_hints(maker.__init__, include_extras=True)


def description(maker: Callable[..., Any]) -> list[str]:
    """What is said about a function or dataclass before the lines about its settings, a paragraph each."""
    text = (inspect.getdoc(maker) or "").split("\n\nArgs:\n")[0]
    return [" ".join(part.split()) for part in text.split("\n\n")]


def about_settings(maker: Callable[..., Any]) -> dict[str, str]:
    """The lines about the settings: the block `Args:` of the docstring, and of those that it is made of (`takes`)."""
    found: dict[str, str] = {}
    if isinstance(maker, TakesParts):
        for part in maker.takes:
            found |= picked(about_settings(part), maker)
    for each in reversed(inspect.getmro(maker)) if inspect.isclass(maker) else [maker]:
        block = inspect.cleandoc(each.__doc__ or "").partition("\n\nArgs:\n")[2].partition("\n\n")[0]
        found |= {
            name: " ".join(line.split())
            for name, line in re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", block, flags=re.M)
        }
    return found


@runtime_checkable
class TakesParts(Protocol):
    """A function whose settings are those of these parts, too, as its signature says."""

    takes: Sequence[Callable[..., Any]]
    __signature__: inspect.Signature


class Marking(Protocol):
    """A decorator that leaves the type as it is; `covey.mypy` then adds the settings of inline parts."""

    def __call__(self, maker: Maker, /) -> Maker:
        """The same function or class, marked."""
        ...


class ChecksSettings(Protocol):
    """A function that has been made to check its settings."""

    checks_settings: bool


def takes(*parts: Callable[..., Any], without: Collection[str] = ()) -> Callable[[Maker], Maker]:
    """Decorates a function that hands its `**settings` on to these parts: it takes what they take.

    Their types, ranges, defaults and lines of help count as its own, so that nothing is written twice. What the
    function names itself, what is in `without` and what the program fills in (`FILLED_IN`) is left to it.
    """

    def extended(maker: Maker) -> Maker:
        signature = inspect.signature(maker)
        own = {name: p for name, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD}
        for part in parts:
            for name, setting in settings_of(part, given=(*without, *FILLED_IN)).items():
                kind, default = inspect.Parameter.KEYWORD_ONLY, setting.default
                own.setdefault(name, inspect.Parameter(name, kind, default=default, annotation=setting.type))
        typed = {name: p.annotation for name, p in own.items()}
        maker.__annotations__ = {**typed, "return": maker.__annotations__["return"]}
        extended_maker = cast(TakesParts, maker)
        extended_maker.__signature__ = signature.replace(parameters=list(own.values()))
        extended_maker.takes = parts
        return maker

    return extended


def picked(settings: Mapping[str, Any], part: Callable[..., Any]) -> dict[str, Any]:
    """Those of the settings that the part takes."""
    return {name: value for name, value in settings.items() if name in inspect.signature(part).parameters}


@dataclass(frozen=True)
class Inline:
    """What makes an argument of which only the settings are given."""

    maker: Callable[..., Any]


def inline(maker: Callable[..., Made]) -> Made:
    """The default of a part among a method's arguments whose settings count as the method's own.

    In a file they stand beside the method's. Python may give them so, too, or give the part as it is. Names that the
    method has itself, and what the program fills in (`FILLED_IN`), are no settings of the part's here. `covey.mypy`
    adds them to the signature that mypy sees.
    """
    return cast(Made, Inline(maker))


def inline_parts(maker: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """What makes each of the arguments whose settings are inline."""
    parameters = _read(maker)[0].parameters
    return {name: p.default.maker for name, p in parameters.items() if isinstance(p.default, Inline)}


def with_parts(maker: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments with every inline part made of its settings among them."""
    signature = _read(maker)[0]
    kept = dict(given)
    for name, made in inline_parts(maker).items():
        wanted, filled = settings_of(made, given=FILLED_IN), inspect.signature(made).parameters
        own = {
            each: value
            for each, value in given.items()
            if each in wanted and each not in signature.parameters
        }
        kept = {each: value for each, value in kept.items() if each not in own}  # one may be several parts'
        if name not in given and (args or "train" in given or "train" not in signature.parameters):
            train = args[0] if args else given.get("train")
            kept[name] = made(**own, **{each: train for each in ("train", "step") if each in filled})
    return kept


def _field_default(maker: Any, name: str, default: Any) -> Any:
    for field in dataclasses.fields(maker):
        if field.name == name and field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
    return default


@dataclass_transform(kw_only_default=True, frozen_default=True)
def validated_in(table: str) -> Callable[[Maker], Maker]:
    """The same for the settings of a table, whose name stands in the sentence."""
    return functools.partial(validated, table=table)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def validated(maker: Maker, *, table: str = "") -> Maker:
    """Decorates a function or a class of settings: a value outside its type or range is one clear sentence.

    A class becomes a frozen dataclass, unless it is a dataclass already or has an `__init__` of its own. What depends
    on several settings is checked in the function or in `__post_init__`.
    """
    if inspect.isclass(maker) and not {"__dataclass_fields__", "__init__"} & vars(maker).keys():
        dataclass(frozen=True, kw_only=True)(maker)
    called = maker.__init__ if inspect.isclass(maker) else maker
    signature = inspect.signature(called)
    constraints = functools.cache(functools.partial(settings_of, maker, given=PARTS_FILLED_IN))

    @functools.wraps(called)
    def checking(*args: Any, **kwargs: Any) -> Any:
        settings = constraints()
        kwargs = with_parts(maker, args, kwargs)
        given = _bound(signature, settings, table, args, kwargs)
        checked(table, settings, {name: value for name, value in given.items() if name in settings})
        return called(*args, **kwargs)

    cast(ChecksSettings, checking).checks_settings = True
    if inspect.isclass(maker):
        maker.__init__ = checking  # type: ignore[method-assign]
        return maker
    return cast(Maker, checking)


def _bound(
    signature: inspect.Signature, settings: Mapping[str, Setting], table: str, args: Any, kwargs: Any
) -> Mapping[str, Any]:
    """The arguments by name; a misspelt or missing one is the same sentence as in a file."""
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        dot = f"{table}." if table else ""
        for name in kwargs:
            if name not in signature.parameters:
                raise UserError(unknown(f"{dot}{name}", name, settings)) from error
        raise UserError(f"{dot}{error}") from error


def checked(where: str, settings: Mapping[str, Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, each of its setting's type; a wrong name or type is one clear sentence."""
    dot = f"{where}." if where else ""
    named: dict[str, Any] = {}
    for name, value in values.items():
        ours = spelled(name, settings)
        if ours not in settings:
            raise UserError(unknown(f"{dot}{name}", name, settings))
        if ours in named:
            raise UserError(f"{dot}{ours} is given in two spellings; give one")
        named[ours] = value
    result = {}
    for name, value in named.items():
        reader = reader_of(settings[name].type)
        if reader is not None:
            result[name] = reader.read(f"{dot}{name}", value)
            continue
        fits, converted = fitted(value, settings[name].type)
        if not fits:
            bound = beyond(value, settings[name].type)
            raise UserError(f"{dot}{name} is {shown(value)}; allowed: {settings[name].allowed}{bound}")
        result[name] = converted
    return result


def only_with(table: str, settings: Any, names: str, holds: bool, what: str) -> None:
    """Refuses settings that would do nothing: those in `names` that are not at their default while `holds` is false.

    At its default a setting says nothing, as the complete file of a run has every one. `what` says what they need.
    """
    usual = {} if holds else {field.name: field.default for field in dataclasses.fields(settings)}
    for name in names.split() if usual else ():
        value = getattr(settings, name)
        if value != usual[name]:
            written = f'"{value}"' if isinstance(value, str) else shown(value)
            raise UserError(f"{table}{'.' if table else ''}{name} is {written}, which needs {what}")


def first_difference(part: Any, usual: Any) -> tuple[str, Any] | None:
    """The first setting of a part, or of one within it, that is not the usual one's, and its value."""
    for field in dataclasses.fields(part):
        ours, theirs = getattr(part, field.name), getattr(usual, field.name)
        if ours != theirs:
            within = dataclasses.is_dataclass(ours) and type(ours) is type(theirs)
            return first_difference(ours, theirs) if within else (field.name, ours)
    return None


class Reader(Protocol):
    """Marks a setting, in `Annotated`, whose value is read by a rule of its own."""

    def read(self, where: str, value: Any) -> Any:
        """The value, complete; `where` is the setting, for the sentence that says what is wrong."""
        ...


def reader_of(wanted: Any) -> Reader | None:
    """The rule by which a setting is read, if it has one."""
    marks = typing.get_args(wanted)[1:] if typing.get_origin(wanted) is Annotated else ()
    return next((mark for mark in marks if hasattr(mark, "read")), None)


def unknown(where: str, name: str, known: Collection[str]) -> str:
    """The sentence for a misspelt name, with the nearest right one."""
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"{where} is not known{hint} Allowed: {', '.join(sorted(known)) or 'nothing'}"


def fitted(value: Any, wanted: Any) -> tuple[bool, Any]:
    """Whether a TOML value fits a type, and the value as that type (whole numbers pass as floats, lists as tuples)."""
    origin = typing.get_origin(wanted)
    if wanted is Any:
        return True, value
    if origin is Annotated:
        kind, *limits = typing.get_args(wanted)
        if kind in LARGEST and any(
            getattr(limit, "most", None) is not None for limit in limits
        ):  # it has a bound of its own
            fits = _whole(value) if kind is int else _number(value)
            converted = kind(value) if fits and all(value in limit for limit in limits) else value
        else:
            fits, converted = fitted(value, kind)
        return fits and all(converted in limit for limit in limits), converted
    if origin is Literal:
        choices = typing.get_args(wanted)
        value = spelled(value, choices) if isinstance(value, str) else value
        return isinstance(value, Hashable) and value in choices, value
    if origin in (Union, types.UnionType):
        if value is None or (isinstance(value, str) and value == "none"):
            return type(None) in typing.get_args(wanted), None
        for option in typing.get_args(wanted):
            if option is not type(None):
                fits, converted = fitted(value, option)
                if fits:
                    return True, converted
        return False, value
    if wanted is bool:
        return isinstance(value, bool), value
    if wanted is int:
        return _whole(value) and abs(value) <= LARGEST[int], value
    if wanted is float:
        fits = _number(value) and abs(value) <= LARGEST[float]
        return fits, float(value) if fits else value
    if wanted is str:
        return isinstance(value, str), value
    if wanted is Path:  # written out in full, so that it holds from any folder
        fits = isinstance(value, str | Path) and "\0" not in str(value)
        return fits, str(Path(value).expanduser().absolute()) if fits else value
    if origin in (tuple, list, Sequence):
        return _convert_list(value, wanted, origin)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping), value
    if inspect.isclass(wanted) and dataclasses.is_dataclass(wanted):
        return isinstance(value, wanted), value
    return True, value


def beyond(value: Any, wanted: Any) -> str:
    """What is said of a number that is of the right type and larger than anybody means."""
    kinds = [kind for kind in _kinds(wanted) if kind in LARGEST]
    if not kinds or not _number(value) or abs(value) <= LARGEST[kinds[0]]:
        return ""
    return f", of at most {LARGEST[kinds[0]]:,}"


def _kinds(wanted: Any) -> list[Any]:
    """The types that a value may have; a number with an upper end of its own is not among them."""
    origin = typing.get_origin(wanted)
    if origin in (Union, types.UnionType):
        return [kind for part in typing.get_args(wanted) for kind in _kinds(part)]
    if origin is Annotated:
        kind, *limits = typing.get_args(wanted)
        return [] if any(limit.most is not None or limit.below is not None for limit in limits) else [kind]
    return [wanted]


def _whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _convert_list(value: Any, wanted: Any, origin: Any) -> tuple[bool, Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return False, value
    value = list(value)
    args = typing.get_args(wanted)
    fixed = origin is tuple and not (len(args) == 2 and args[1] is Ellipsis)
    if fixed and len(value) != len(args):
        return False, value
    kinds = args if fixed else [args[0]] * len(value)
    parts = [fitted(part, kind) for part, kind in zip(value, kinds, strict=True)]
    whole = [part for _, part in parts]
    return all(fits for fits, _ in parts), whole if origin is list else tuple(whole)


WORDS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("text", "texts"),
    Path: ("a path", "paths"),
}


def in_words(wanted: Any, *, many: bool = False) -> str:
    """A type as a user reads it."""
    origin = typing.get_origin(wanted)
    if origin is Literal:
        return ", ".join(map(str, typing.get_args(wanted)))
    if reader_of(wanted) is not None:
        return str(reader_of(wanted))
    if origin is Annotated:
        kind, *limits = typing.get_args(wanted)
        bounds = " and ".join(map(str, limits))
        return f"{in_words(kind, many=many)}{',' if bounds.startswith('at') else ''} {bounds}"
    if origin in (Union, types.UnionType):
        return " or ".join(
            "none" if a is type(None) else in_words(a, many=many) for a in typing.get_args(wanted)
        )
    if origin in (tuple, list, Sequence):
        lists = "lists" if many else "a list"
        return f"{lists} of {in_words(typing.get_args(wanted)[0], many=True)}"
    if origin in (dict, Mapping):
        return "tables" if many else "a table"
    if inspect.isclass(wanted) and dataclasses.is_dataclass(wanted):
        return f"a {wanted.__name__}"
    return WORDS.get(wanted, ("a value", "values"))[many]
