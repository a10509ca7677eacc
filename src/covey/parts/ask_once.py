"""Each client is asked the first time it is seen: its answer is kept; one that does not answer is asked again next
round."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from covey.core import Key, Reply, Round, Step

T = TypeVar("T")

Ask = Callable[[list[int]], Mapping[int, T]]  # clients -> what those of them who answered told


@dataclass(frozen=True, kw_only=True, eq=False)
class Heard(Generic[T]):
    """What clients have told: all of them so far, and those among them that told it just now."""

    known: dict[int, T]
    news: dict[int, T]


def answers(now: Round, step: Step, read: Callable[[Reply], T | None]) -> Ask[T]:
    """Asks clients a step that needs no model; `read` takes the answer out of a reply, None where it holds none."""

    def ask(ids: list[int]) -> dict[int, T]:
        told = ((reply.id, read(reply)) for reply in now.ask(step, ids))
        return {client: value for client, value in told if value is not None}

    return ask


def news(now: Round, known: Container[int], ask: Ask[T], ids: Iterable[int] | None = None) -> dict[int, T]:
    """The answers of those of `ids` (everybody who is here) that are not known yet."""
    unknown = [i for i in (now.here if ids is None else ids) if i not in known]
    return dict(ask(unknown)) if unknown else {}


def ask_once(now: Round, key: Key[dict[int, T]], ask: Ask[T], ids: Iterable[int] | None = None) -> Heard[T]:
    """The same, with what was told kept in the server's memory."""
    known = key.get(now.memory, {})
    fresh = news(now, known, ask, ids)
    if fresh:
        known = known | fresh
        key.keep(now.memory, known)
    return Heard(known=known, news=fresh)


def grouped_once(
    now: Round,
    heard: Heard[T],
    *,
    first: Callable[[dict[int, T]], Mapping[int, int]],
    place: Callable[[Heard[T]], Mapping[int, int]],
) -> dict[int, int]:
    """Groups by what clients told: found among the first who did; later ones are placed and nobody else moves."""
    if not heard.news:
        return now.groups
    if not now.groups:
        return dict(first(heard.known))
    return now.groups | dict(place(heard))
