"""The live line of a run: round, the main number, time left."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import rich.console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from rich.table import Table

    from covey.core.round import RoundEnd, Watcher

LONGEST = 500  # characters of a foreign text that are shown or kept


def printable(text: str) -> str:
    """The text on one line, without what could steer a terminal or cannot be written as UTF-8."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:LONGEST])


def is_text(text: str) -> bool:
    """Whether it can be written as UTF-8: bytes of another encoding in a command become characters that cannot."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def uncontrolled(text: str) -> str:
    """The text as it is, lines and all, without what could steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


# Characters that reverse the direction of what follows: with them a name can disguise the text around it.
TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def in_order(text: str) -> str:
    """The text without characters that reverse the direction of the text around it."""
    return text.translate(dict.fromkeys(map(ord, TURNS), "\N{REPLACEMENT CHARACTER}"))


class Console(rich.console.Console):
    """Rich's console, on which nothing in a text is a command: no escape sequence, no [markup], no :emoji:, no colours
    for what looks like a number.

    A folder, a class or a method may have any name, and a sentence may speak of `[guard]`; what is to be bold is a
    `Text` or has a style.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"highlight": False, **settings})

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(uncontrolled(text), **{**settings, "markup": False, "emoji": False})

    def print_words(self, text: str, style: str = "") -> None:
        """Lines are broken between words only: a path that is longer than a line stays in one piece."""
        lines = textwrap.fill(text, self.width, break_long_words=False, break_on_hyphens=False)
        self.print(Text(uncontrolled(lines), style=style), soft_wrap=True)

    def print_whole(self, table: Table) -> None:
        """A line that is too long for the terminal is better than a number or a name that is cut off."""
        wanted = self.measure(table, options=self.options.update(max_width=1000)).maximum
        Console(file=self.file, width=max(self.width, wanted)).print(table)


console = Console(stderr=True)
LINES = 20  # of a whole run
QUIET_SECONDS = 10.0  # without a line, at most


def say(text: str) -> None:
    """One line about what takes a while; the text may be a stranger's, so nothing in it is markup."""
    stamp = f"{datetime.now():%Y-%m-%d %H:%M:%S} " if _timed else ""
    console.print_words(stamp + printable(text), style="dim")


_timed: list[bool] = []


@contextmanager
def with_times() -> Iterator[None]:
    """In this block lines begin with the time: the output of runs over days is read in logs."""
    _timed.append(True)
    try:
        yield
    finally:
        _timed.pop()


class Due:
    """Whether a round is worth a line: the first and the last are, and one in twenty, or after ten seconds."""

    def __init__(self, rounds: int, *, every_round: bool = False) -> None:
        self.rounds = rounds
        self.step = 1 if every_round else max(1, rounds // LINES)
        self.last = -math.inf

    def __call__(self, number: int) -> bool:
        now = time.monotonic()
        due = number == self.rounds or number % self.step == 0 or now - self.last >= QUIET_SECONDS
        self.last = now if due else self.last
        return due


def bars(*more: ProgressColumn, transient: bool) -> Progress:
    """Bars with a title, how many of how many, a number and the time; and more columns."""
    return Progress(
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[value]}", markup=False),
        TimeElapsedColumn(),
        *more,
        console=console,
        transient=transient,
    )


@contextmanager
def live(title: str, rounds: int, *, every_round: bool = False) -> Iterator[Watcher]:
    """A progress bar for the time of a run; what it yields is the watcher that moves it.

    Where the output is no terminal it is lines: about twenty, and one at least every ten seconds, or one per round.
    """
    due = Due(rounds, every_round=every_round)
    bar = bars(TextColumn("left"), TimeRemainingColumn(), transient=not console.is_terminal)
    with bar:
        task = bar.add_task(title, total=rounds, value="")

        def watch(end: RoundEnd) -> None:
            text = main_numbers(end)
            if text:
                bar.update(task, value=text)
            bar.update(task, completed=end.state.round)
            if not console.is_terminal and due(end.state.round):
                say(f"{title}: round {end.state.round} of {rounds}: {len(end.state.worked)} clients  {text}")

        yield watch


def main_numbers(end: RoundEnd) -> str:
    """The main numbers of a round, where they were measured."""
    main = end.fleet.objective.main
    found = [(s, end.value(s, m)) for s, m in (("global-test", main), ("local-test", f"{main}-mean"))]
    return "  ".join(f"{split} {value:.4f}" for split, value in found if value is not None)


class Many:
    """Several runs at once: a bar for each of those that continue, and one for all."""

    def __init__(self, bar: Progress, total: int, say: Callable[[str], None] = say) -> None:
        self.bar, self.total, self.ended, self.say = bar, total, 0, say
        self.all = bar.add_task("all runs", total=total, value="")
        self.tasks: dict[str, TaskID] = {}
        self.last: dict[str, str] = {}

    def round(self, title: str, number: int, rounds: int, text: str) -> None:
        if title not in self.tasks:
            self.tasks[title] = self.bar.add_task(title, total=rounds, value="")
        self.last[title] = text or self.last.get(title, "")
        self.bar.update(self.tasks[title], completed=number, value=self.last[title])

    def done(self, title: str, words: str) -> None:
        """A run has ended; `words` say how, where it did not end as usual."""
        self.ended += 1
        if title in self.tasks:
            self.bar.remove_task(self.tasks.pop(title))
        self.bar.update(self.all, completed=self.ended)
        self.say(f"{self.ended}/{self.total} {title}: {words or self.last.pop(title, '')}")

    def watcher(self, title: str) -> Watcher:
        """For a run in this process."""
        return lambda end: self.round(title, end.state.round, end.rounds, main_numbers(end))


@contextmanager
def live_many(total: int) -> Iterator[Many]:
    """Bars for the time of a study; where the output is no terminal, a line per finished run."""
    with bars(transient=True) as bar:
        yield Many(bar, total)


@contextmanager
def download_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar per file for the time of a download; what it yields is told the file, its bytes here and in all.

    Where the output is no terminal it is a line when a file begins, and one when it is there.
    """
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bar = Progress(TextColumn("{task.description}", markup=False), *columns, console=console)
    tasks: dict[str, TaskID] = {}
    with bar:

        def watch(name: str, done: int, total: int) -> None:
            begins = name not in tasks
            if begins:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done)
            if not console.is_terminal and (begins or done == total):
                say(f"{name}: {done / 1e6:,.1f} of {total / 1e6:,.1f} MB")

        yield watch


@contextmanager
def unseen(title: str, rounds: int) -> Iterator[Watcher]:  # noqa: ARG001
    """A run in silence."""
    yield lambda _: None


@contextmanager
def many_unseen(total: int) -> Iterator[Many]:
    """A study in silence."""
    yield Many(Progress(disable=True), total, say=lambda _: None)
