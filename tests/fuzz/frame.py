"""How a subject is fuzzed: so many cases, what became of them, and which of them were faults."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import psutil
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

Subject = tuple[str, st.SearchStrategy[Any], Callable[[Any], str]]  # its name, the cases, what becomes of one

AT_ONCE = 500  # cases of one seed
GROWTH = 64.0  # MB that a whole run may grow by, once everything has been used
HEAD = "| what | cases | what became of them | slowest, CPU s | memory, MB | s |\n| --- | --- | --- | --- | --- | --- |"


def damaged(block: bytes) -> st.SearchStrategy[bytes]:
    """The block with bytes changed, taken out or put in."""
    place = st.integers(0, len(block) - 1)
    changed = st.builds(lambda at, to: block[:at] + bytes([to]) + block[at + 1 :], place, st.integers(0, 255))
    cut = place.map(lambda at: block[:at])
    grown = st.builds(lambda at, more: block[:at] + more + block[at:], place, st.binary(max_size=40))
    twice = place.map(lambda at: block + block[at:])
    return changed | cut | grown | twice


@dataclass
class Tried:
    """What became of the cases of one subject."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0  # CPU seconds
    growth: float = 0.0  # MB, after the first fifth
    seconds: float = 0.0

    def __str__(self) -> str:
        became = ", ".join(f"{what} {count:,}" for what, count in self.counts.most_common())
        return (
            f"| {self.name} | {self.counts.total():,} | {became} | {self.slowest:.2f} | {self.growth:+.0f} | "
            f"{self.seconds:.0f} |"
        )


def tried(
    name: str, strategy: st.SearchStrategy[Any], one: Callable[[Any], str], cases: int, first: int
) -> Tried:
    """Tries so many cases of a subject."""
    result, began, settled, number = Tried(name), time.monotonic(), 0.0, first

    def single(case: Any) -> None:
        at = time.process_time()
        try:
            result.counts[one(case)] += 1
        except Exception as error:
            result.counts["fault"] += 1
            result.faults.append(f"{name}: {type(error).__name__}: {error}: {case!r:.300}")
        result.slowest = max(result.slowest, time.process_time() - at)

    while (done := result.counts.total()) < cases:
        some = settings(
            max_examples=min(AT_ONCE, cases - done),
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(given(strategy)(single))
        seed(number)(some)()
        number += 1
        memory = psutil.Process().memory_info().rss / 2**20
        settled = settled or (memory if result.counts.total() >= cases / 5 else 0.0)
        result.growth = memory - (settled or memory)
    if result.growth > GROWTH:
        result.faults.append(f"{name}: memory grew by {result.growth:.0f} MB")
    result.seconds = time.monotonic() - began
    return result


def fuzz(
    subjects: Iterable[Subject], cases: int, first: int = 0, say: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Tries so many cases of every subject; gives the faults. `say` gets a line of a table per subject."""
    faults: list[str] = []
    for name, strategy, one in subjects:
        result = tried(name, strategy, one, cases, first)
        say(str(result))
        faults += result.faults
    return faults
