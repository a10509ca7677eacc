"""Strangers are asked once, and who does not answer is asked again."""

from types import SimpleNamespace

from covey.core.needs import Key
from covey.core.round import Reply
from covey.parts.ask_once import Heard, answers, ask_once, grouped_once

TOLD: Key[dict[int, int]] = Key("told")


def a_round(here, answering, memory=None, groups=None):
    """A round in which the clients `answering` tell ten times their number."""
    asked: list[list[int]] = []

    def ask(step, ids):
        asked.append(list(ids))
        return [Reply(id=i, stats={"number": 10 * i} if i in answering else {}) for i in ids]

    return SimpleNamespace(
        here=here, memory={} if memory is None else memory, groups=groups or {}, ask=ask, asked=asked
    )


def hear(now) -> Heard[int]:
    return ask_once(now, TOLD, answers(now, None, lambda reply: reply.stats.get("number")))


def test_only_strangers_are_asked_and_all_is_remembered() -> None:
    memory: dict = {}
    first = hear(a_round([1, 2, 3], {1, 3}, memory))
    assert (first.known, first.news) == ({1: 10, 3: 30}, {1: 10, 3: 30})
    later = a_round([2, 3, 4], {2, 3, 4}, memory)
    heard = hear(later)
    assert later.asked == [[2, 4]]
    assert heard.news == {2: 20, 4: 40}
    assert heard.known == memory["told"] == {1: 10, 3: 30, 2: 20, 4: 40}
    quiet = a_round([1, 2], set(), memory)
    assert hear(quiet).news == {}
    assert quiet.asked == []


def test_groups_are_found_once_and_unseen_placed() -> None:
    memory: dict = {}

    def groups(now):
        return grouped_once(
            now,
            hear(now),
            first=lambda told: {i: number // 20 for i, number in told.items()},
            place=lambda heard: dict.fromkeys(heard.news, 7),
        )

    first = groups(a_round([1, 2], {1, 2}, memory))
    assert first == {1: 0, 2: 1}
    assert groups(a_round([1, 2, 3], {3}, memory, first)) == {1: 0, 2: 1, 3: 7}
    assert groups(a_round([1], set(), memory, first)) == first
