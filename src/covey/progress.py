"""The live line of a run: round, the main number, time left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from covey.terminal import Console
from covey.text import printable

if TYPE_CHECKING:
    from covey.core import RoundEnd, Watcher

console = Console(stderr=True)
LINES = 20  # of a whole run
QUIET_SECONDS = 10.0  # without a line, at most


def say(text: str) -> None:
    """One line about what takes a while; the text may be a stranger's, so nothing in it is markup."""
    console.print(Text(printable(text), style="dim"))


class Due:
    """Whether a round is worth a line: the first and the last are, and one in twenty, or after ten seconds."""

    def __init__(
        self, rounds: int, *, every_round: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rounds = rounds
        self.step = 1 if every_round else max(1, rounds // LINES)
        self.clock = clock
        self.last = -math.inf

    def __call__(self, number: int) -> bool:
        now = self.clock()
        due = number == self.rounds or number % self.step == 0 or now - self.last >= QUIET_SECONDS
        self.last = now if due else self.last
        return due


@contextmanager
def live(title: str, rounds: int, *, every_round: bool = False) -> Iterator[Watcher]:
    """A progress bar for the time of a run; what it yields is the watcher that moves it.

    Where the output is no terminal it is lines: about twenty, and one at least every ten seconds, or one per round.
    """
    due = Due(rounds, every_round=every_round)
    bar = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[value]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(title, total=rounds, value="")

        def watch(end: RoundEnd) -> None:
            main = end.fleet.objective.main
            found = [(s, end.value(s, m)) for s, m in (("global-test", main), ("local-test", f"{main}-mean"))]
            text = "  ".join(f"{split} {value:.4f}" for split, value in found if value is not None)
            if text:
                bar.update(task, value=text)
            bar.update(task, completed=end.state.round)
            if not console.is_terminal and due(end.state.round):
                say(f"{title}: round {end.state.round} of {rounds}: {len(end.state.worked)} clients  {text}")

        yield watch
