"""What one part of a method gives and another needs.

A part says so in two attributes, `needs` and `gives`; a `Key` is what it keeps in the server's memory. A method is
checked when it is composed: what no part gives is one error then, and never a silent default in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from covey.errors import RunError, UserError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Fact:
    """Something that a part of a method can rely on: its name, and what to do where nothing gives it.

    Who gives a fact gives what it `implies`, too.
    """

    name: str
    remedy: str
    implies: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class Key(Fact, Generic[T]):
    """A fact that lies in the server's memory, under its name; `remedy` is empty for what only its keeper reads."""

    remedy: str = ""

    def of(self, memory: Mapping[str, Any]) -> T:
        """What is kept; a `RunError` where nobody has kept anything yet."""
        if self.name not in memory:
            raise RunError(f"the server knows no {self.name}: {self.remedy or 'its keeper has not run yet'}")
        value: T = memory[self.name]
        return value

    def get(self, memory: Mapping[str, Any], first: T) -> T:
        """What is kept, or `first` for the keeper itself before it has kept anything."""
        value: T = memory.get(self.name, first)
        return value

    def keep(self, memory: MutableMapping[str, Any], value: T) -> None:
        memory[self.name] = value


KNOWN_GROUPS = Fact("groups", "add a group part")  # of those clients that have worked
# of everybody who answers, from the first round on
GROUPS = Fact("groups", "add a group part", (KNOWN_GROUPS,))
ONE_MODEL = Fact("one common model", 'set bank = "one"')
SEVERAL_MODELS = Fact("several models", 'set bank = "per-group" or bank = "random-starts"')
MODEL_PER_GROUP = Fact("a model per group", 'set bank = "per-group"', (SEVERAL_MODELS,))
MODEL_PER_CLIENT = Fact("a model per client", 'set bank = "per-client"')
ACCURACY = Fact("the accuracy of the received model in every reply", 'set local = "scored"')
UTILITY = Fact("the utility of a client's data in every reply", 'set local = "utility"')

Facts = tuple[Fact, ...]


class OwnModel(NamedTuple):
    """What a method that grows a model of its own asks of a run, by its settings: the table [model], and the rounds."""

    model: Callable[[Mapping[str, Any]], dict[str, Any]]
    rounds: Callable[[Mapping[str, Any]], int]


@runtime_checkable
class GrowsOwnModel(Protocol):
    """A method's maker that takes no other model than one of its own."""

    own_model: OwnModel


def own_model(
    model: Callable[[Mapping[str, Any]], dict[str, Any]], rounds: Callable[[Mapping[str, Any]], int]
) -> Callable[[F], F]:
    """Says of a method's maker that it takes no other model than this one."""

    def mark(maker: F) -> F:
        cast(GrowsOwnModel, maker).own_model = OwnModel(model, rounds)
        return maker

    return mark


def own_model_of(maker: object) -> OwnModel | None:
    """The model that the method grows; None where it trains any."""
    return maker.own_model if isinstance(maker, GrowsOwnModel) else None


def needs_of(part: object) -> Facts:
    """What the part needs from others; nothing, where it does not say."""
    found: Facts = getattr(part, "needs", ())
    return found


def gives_of(part: object) -> Facts:
    """What others may rely on because of the part; nothing, where it does not say."""
    found = getattr(part, "gives", ())
    if not isinstance(found, tuple):  # a class whose parts differ in that
        return ()
    return tuple(each for fact in found for each in (fact, *fact.implies))


def like(field: str) -> tuple[Any, Any]:
    """`needs` and `gives` of a part around another, which is in that field: those of the part inside."""
    return (
        property(lambda part: needs_of(getattr(part, field))),
        property(lambda part: gives_of(getattr(part, field))),
    )


def missing(parts: Mapping[str, object]) -> dict[Fact, str]:
    """Every fact that a part needs and none gives, with the name of the first part that needs it."""
    given = {fact for part in parts.values() for fact in gives_of(part)}
    found: dict[Fact, str] = {}
    for name, part in parts.items():
        for fact in needs_of(part):
            if fact not in given:
                found.setdefault(fact, name)
    return found


def check_parts(parts: Mapping[str, object]) -> None:
    """Raises one sentence where a part lacks something, or where two give the same fact in their own ways.

    `parts` have the names that a user gives them: "select haccs".
    """
    for fact, name in missing(parts).items():
        raise UserError(f"{name} needs {fact.name}: {fact.remedy}")
    givers: dict[Fact, str] = {}
    for name, part in parts.items():
        for fact in gives_of(part):
            if not isinstance(fact, Key) and givers.setdefault(fact, name) != name:
                raise UserError(f"{givers[fact]} and {name} both make {fact.name}: leave one of them out")


def called(kind: str, part: object) -> str:
    """A part's name where nobody gave it one: the question that it answers and what it is called in Python."""
    return f"{kind} {getattr(part, '__name__', type(part).__name__)}"


def named_parts(kinds: Mapping[str, object], after: Sequence[object]) -> dict[str, object]:
    """The parts that are there, by their names in Python."""
    found = {called(kind, part): part for kind, part in kinds.items() if part is not None}
    return found | {called("after", part): part for part in after}
