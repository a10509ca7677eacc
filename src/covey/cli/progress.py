"""The live line of a run: round, the main number, time left."""

from __future__ import annotations

from collections.abc import Iterator
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

from covey.cli.terminal import Console
from covey.text import printable

if TYPE_CHECKING:
    from covey.core import RoundEnd, Watcher

console = Console(stderr=True)


def say(text: str) -> None:
    """One line about what takes a while; the text may be a stranger's, so nothing in it is markup."""
    console.print(Text(printable(text), style="dim"))


@contextmanager
def live(title: str, rounds: int, *, lines: bool = False) -> Iterator[Watcher]:
    """A progress bar for the time of a run; what it yields is the watcher that moves it.

    With `lines`, a line a round for logs.
    """
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
            if lines:
                say(f"round {end.state.round} of {rounds}: {len(end.state.worked)} clients  {text}")

        yield watch
