"""How the pieces of a method say what they are: `@method`, `@part`, `@step`; the same line registers them."""

from collections.abc import Callable
from typing import TypeVar, dataclass_transform

from covey.core.needs import Facts
from covey.core.shows import Shows
from covey.settings.parts import is_part
from covey.settings.signatures import Maker, Marking, validated

Class = TypeVar("Class", bound=type)


def method(name: str, *, family: str, paper: str = "") -> Marking:  # noqa: ARG001
    """Marks a function of `train` and settings that composes a method.

    The family is the question that it answers, the paper the address of the one that describes it.
    """
    return validated


@dataclass_transform(kw_only_default=True, frozen_default=True)
def part(
    question: str,  # noqa: ARG001
    name: str,  # noqa: ARG001
    *,
    needs: Facts | None = None,
    gives: Facts | None = None,
    shows: Shows | None = None,
) -> Marking:
    """Marks an answer to one of a round's questions: group, bank, select, send, local, mix, combine, update, after.

    A class becomes a frozen dataclass of settings. A function of the round (`now`) is a part as it is. Any other
    function makes a part from its settings. What it needs, gives and shows is said here, or in a class by a property.
    """
    return lambda thing: _saying(thing, needs=needs, gives=gives, shows=shows)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def step(
    name: str = "",
    *,
    kind: str = "",
    needs: Facts | None = None,
    gives: Facts | None = None,
    shows: Shows | None = None,
    of_labels: bool | None = None,
    passes: float | None = None,
) -> Callable[[Class], Class]:
    """Marks something that a client can be asked, a frozen dataclass; with a name also a local part, "train.NAME"."""
    asked = kind or (f"train.{name}" if name else None)
    said = {"needs": needs, "gives": gives, "shows": shows, "of_labels": of_labels, "passes": passes}
    return lambda thing: _saying(thing, kind=asked, **said)


def _saying(thing: Maker, **said: object) -> Maker:
    """The part with these attributes, and with its settings checked."""
    for attribute, value in said.items():
        if value is not None:
            setattr(thing, attribute, value)
    return thing if is_part(thing) else validated(thing)
