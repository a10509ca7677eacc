"""Things by name: built in, brought by an installed package, or your own in a module or a file.

A name is looked up in this order:

    fedavg                     what is built in
    scaffold                   an entry point of an installed package, in the registry's group (covey.methods, ...)
    package.module:scaffold    anything that can be imported
    path/to/mine.py:scaffold   anything in a file

`covey.settings.catalogue` holds one registry for each kind of thing; what is built in registers itself by `@register`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from covey.errors import UserError
from covey.settings.own_code import (
    GIVEN,
    file_and_name,
    is_file,
    load_file,
    load_module,
    load_own,
    one_sentence,
    package_hash,
)
from covey.settings.signatures import Maker, unknown, validated_in
from covey.settings.spelling import spelled

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

# On a site, names of modules and files do not count; what its own command line allowed does, by its bare name.
# None: this is no site.
_ALLOWED: ContextVar[Mapping[str, str] | None] = ContextVar("allowed", default=None)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a thing that is not built in came from: its file or package, and the SHA-256 of the source."""

    kind: str
    name: str
    source: str
    sha256: str


PACKAGE = Path(__file__).parents[1]
# @register("data set", "digits"), @part("select", "oort"), @method("oort", family="selection"), @step("utility")
MARK = re.compile(
    r'^@(?P<mark>register|part|method|step)\((?:\s*"(?P<first>[^"]+)")?(?:,\s*"(?P<second>[^"]+)")?'
    r'(?:,\s*family="(?P<family>[^"]+)")?(?:,\s*paper="(?P<paper>[^"]+)")?',
    flags=re.M,
)
NEXT = re.compile(r"^(?:def|class) (\w+)", flags=re.M)


# Kinds whose settings are checked -> the table that they stand in, for the sentence that says what is wrong.
CHECKED = {
    "data set": "data",
    "partition": "",
    "shift": "",
    "model": "model",
    "encoder": "data.encoder",
    "adapter": "model.adapter",
}


@runtime_checkable
class ToldOtherwise(Protocol):
    """Something registered whose settings a site is told in another form, which has no path of this machine."""

    told: Callable[..., dict[str, Any]]


def register(
    kind: str,
    name: str = "",  # noqa: ARG001
    *,
    told: Callable[..., dict[str, Any]] | None = None,
) -> Callable[[Maker], Maker]:
    """Marks a function or a class as built in, under a name (a step: its own); of methods see `covey.core.declare`.

    The line is read and not run: what is registered is known without importing it, so that `covey --help` is quick.
    """

    def mark(thing: Maker) -> Maker:
        made = validated_in(CHECKED[kind])(thing) if kind in CHECKED else thing
        if told is not None:
            cast(ToldOtherwise, made).told = told
        return made

    return mark


def as_told(maker: object, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of something registered as a site is told them."""
    return maker.told(**settings) if isinstance(maker, ToldOtherwise) else dict(settings)


class Mark(NamedTuple):
    """Where something that is built in stands, and of a method its family and the address of its paper."""

    place: str  # "module:attribute"
    family: str
    paper: str


@cache
def registered() -> dict[str, dict[str, Mark]]:
    """Kind -> name -> what the line above it says, of all that is marked in the files of this package."""
    found: dict[str, dict[str, Mark]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        module = ".".join((PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        for line in MARK.finditer(text):
            attribute = NEXT.search(text, line.end())
            for kind, name in kinds(line["mark"], line["first"] or "", line["second"] or ""):
                if attribute is not None:
                    mark = Mark(f"{module}:{attribute[1]}", line["family"] or "", line["paper"] or "")
                    found.setdefault(kind, {})[name or attribute[1]] = mark
    return found


def kinds(mark: str, first: str, second: str) -> list[tuple[str, str]]:
    """Of what kinds a marked thing is, with its name in each (empty: its own)."""
    if mark == "register":
        return [(first, second)]
    if mark == "part":
        return [(f"{first} part", second)]
    if mark == "method":
        return [("method", first)]
    return [("step", ""), ("local part", first)] if first else [("step", "")]


class Registry(Mapping[str, T], Generic[T]):
    """All things of one kind by name; what is built in is imported when it is first asked for."""

    def __init__(self, kind: str, group: str, builtin: Mapping[str, str] | None = None) -> None:
        self.kind = kind  # as a user reads it: "method"
        self.group = group  # of entry points: "covey.methods"
        self._builtin = builtin
        self.objects: dict[str, tuple[Any, str]] = {}  # given by this program: name -> thing, its digest

    @property
    def builtin(self) -> Mapping[str, str]:
        """Name -> "module:attribute" of all that registers itself in this package."""
        if self._builtin is None:
            self._builtin = {name: mark.place for name, mark in registered().get(self.kind, {}).items()}
        return self._builtin

    def __iter__(self) -> Iterator[str]:
        """What is built in, then what installed packages bring."""
        yield from self.builtin
        yield from (name for name in self.installed() if name not in self.builtin)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (self.called(name) in self.builtin or self._find(name) is not None)

    def __getitem__(self, name: str) -> T:
        found: T | None = self._find(name)
        if found is None:
            raise KeyError(name)
        return found

    def called(self, name: str) -> str:
        """What is built in under this name in its own spelling; any other name as it is."""
        return spelled(name, self.builtin)

    def find(self, name: object, where: str = "") -> T:
        """The thing of that name, or a `UserError` that begins with `where`, the setting that names it."""
        where = where or f"{self.kind} {name!r}"
        if not isinstance(name, str):
            raise UserError(f"{where} is not known; the name of a {self.kind} must be text")
        found: T | None = self._find(name)
        if found is not None:
            return found
        if is_file(name):
            raise UserError(f"{where} is a file; say which {self.kind} in it: {name}:NAME")
        raise UserError(unknown(where, name, list(self)))

    def installed(self) -> dict[str, EntryPoint]:
        """What installed packages bring, by name."""
        from importlib import metadata

        return {point.name: point for point in metadata.entry_points(group=self.group)}

    def give(self, called: str, thing: Any, sha256: str) -> str:
        """A name for an object of a Python program, good for this process: it tells what it is, not how to make it."""
        name = f"{GIVEN}{called}@{sha256[:12]}"
        self.objects[name] = (thing, sha256)
        return name

    @contextmanager
    def lent(self, name: str, thing: Any) -> Iterator[None]:
        """For a while, the object of a Python program under the name that it had there."""
        before = self.objects.get(name)
        self.objects[name] = (thing, before[1] if before else "")
        try:
            yield
        finally:
            self.objects.pop(name)
            if before is not None:
                self.objects[name] = before

    def origin(self, name: str) -> Origin | None:
        """Where the thing came from; None for what is built in."""
        if name in self.builtin:
            return None
        if name in self.objects:
            return self._origin(name, "a Python program", self.objects[name][1])
        point = self.installed().get(name)
        place = point.module if point else file_and_name(name)[0]
        if is_file(place):
            return self._origin(name, str(Path(place).resolve()), load_file(Path(place)).sha256)
        package = f"{point.dist.name} {point.dist.version}" if point and point.dist else place
        return self._origin(name, package, package_hash(place))

    def _origin(self, name: str, source: str, sha256: str) -> Origin:
        return Origin(kind=self.kind, name=name, source=source, sha256=sha256)

    def _find(self, name: str) -> Any:
        name = self.called(name)
        if name in self.builtin:
            module, _, attribute = self.builtin[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        if name.startswith(GIVEN):
            return self._object(name)
        what = f"{self.kind} {name!r}"
        point = self.installed().get(name)
        if point is not None:
            load_module(point.module, what)
            with one_sentence(what):
                return point.load()
        allowed = _ALLOWED.get()
        if allowed is not None:  # nothing is loaded because a server says so
            return load_own(allowed[name], what) if name in allowed else None
        return load_own(name, what) if ":" in name else None

    def _object(self, name: str) -> Any:
        if name not in self.objects:
            raise UserError(
                f"the {self.kind} {name!r} was an object of a Python program, which alone can run it again: call "
                "covey.run there with the same objects and the same folder"
            )
        return self.objects[name][0]


@contextmanager
def only_installed(allowed: Mapping[str, str] | None = None) -> Iterator[None]:
    """For a while only what is built in or installed is found, and what `allowed` says by its bare name.

    Without `allowed`, what was allowed already stays so.
    """
    token = _ALLOWED.set(dict(allowed if allowed is not None else _ALLOWED.get() or {}))
    try:
        yield
    finally:
        _ALLOWED.reset(token)
