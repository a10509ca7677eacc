"""Which methods can be private at which level: what a part shows the server that no noise covers, and what to use."""

from typing import Any

from covey.core import Method, each_reply, shows_of
from covey.errors import UserError
from covey.parts.serving import UnlessInDoubt
from covey.privacy.settings import Level

REPLACEMENT = 'private.level = "local" or "example" puts the noise on every single update'


def check_private(method: Method, level: Level) -> None:
    """Refuses, in one sentence, a method that shows the server what the noise does not cover."""
    for kind, part in parts_of(method):
        if why := objection(kind, part, level):
            raise UserError(f"method {method.name} cannot be private at the {level} level: {why}")
    if method.gather is not each_reply and not isinstance(method.gather, UnlessInDoubt):
        raise UserError(f"method {method.name} gathers replies in a way of its own; leave [private] out")


def parts_of(method: Method) -> list[tuple[str, Any]]:
    """Every part that is there, by the question that it answers; what clients would tell first comes first."""
    kinds = ("group", "combine", "mix", "select", "send", "serve", "bank", "local", "update")
    parts = [(kind, getattr(method, kind)) for kind in kinds]
    return [
        (kind, part)
        for kind, part in (*parts, *(("after", part) for part in method.after))
        if part is not None
    ]


def objection(kind: str, part: Any, level: Level) -> str:
    """What a part shows the server, and what to use; nothing where the noise covers it."""
    shows = shows_of(part)
    if shows is None:
        name = getattr(part, "__name__", type(part).__name__)
        return (
            f"its {kind} part {name} does not say what it shows the server; use a part of covey's, or let it say so "
            "(shows = covey.core.shows.NOTHING, if it asks clients nothing and reads sums as well as single replies)"
        )
    if not shows.what or (shows.in_updates and level != "client"):
        return ""  # what is made of noisy updates costs nothing more
    instead = f"{shows.instead}; or {REPLACEMENT}" if shows.in_updates else shows.instead
    return f"it would show the server {shows.what}; {instead}"
