"""How the pieces of a method say what they are: `@method`, `@part`, `@step`; the same line registers them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar, dataclass_transform

from covey.core.needs import Facts
from covey.core.shows import Shows
from covey.settings.signatures import Maker, validated

Class = TypeVar("Class", bound=type)


def method(name: str, *, family: str, paper: str = "") -> Callable[[Maker], Maker]:  # noqa: ARG001
    """Marks a function of `train` and settings that composes a method.

    The family is the question that it answers, the paper the address of the one that describes it.
    """
    return validated


@dataclass_transform(kw_only_default=True, frozen_default=True)
def part(
    question: str,  # noqa: ARG001
    name: str,  # noqa: ARG001
    *,
    needs: Facts = (),
    gives: Facts = (),
    shows: Shows | None = None,
) -> Callable[[Maker], Maker]:
    """Marks an answer to one of a round's questions: group, bank, select, send, local, mix, combine, update, after.

    A class becomes a frozen dataclass of settings and says itself what it needs, gives and shows. A function of the
    round (`now`) is a part as it is and says it here. Any other function makes a part from its settings.
    """

    def mark(thing: Maker) -> Maker:
        said = {"needs": needs, "gives": gives, "shows": shows}
        for attribute, value in said.items():
            if value:
                setattr(thing, attribute, value)
        is_part = not inspect.isclass(thing) and next(iter(inspect.signature(thing).parameters), "") == "now"
        return thing if is_part else validated(thing)

    return mark


@dataclass_transform(kw_only_default=True, frozen_default=True)
def step(name: str = "") -> Callable[[Class], Class]:  # noqa: ARG001
    """Marks something that a client can be asked, a frozen dataclass with a `kind`; with a name also a local part."""
    return validated
