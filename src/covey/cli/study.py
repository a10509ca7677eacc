"""What `covey compare --seeds` and `covey sweep` share: make a study's runs, print its table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from covey.errors import RunError, UserError
from covey.terminal import console, live_many, say

if TYPE_CHECKING:
    from covey.report.replicas import Replicas
    from covey.runs.study.plan import Plan


def make_study(plan: Plan, folder: Path, processes: int | None = None) -> None:
    """Makes the study, or what is left of it, and shows what it found."""
    from covey.runs.study.execute import StudyInterrupted, execute

    try:
        done = execute(plan, folder, show=live_many, say=say, processes=processes)
    except StudyInterrupted as interrupted:
        console.print(f"covey: {interrupted}", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(130) from None
    if done.runs:
        show_study(done.replicas)
        console.print(f"report: {folder / 'report.html'}", highlight=False)
    if words := done.failures():
        raise RunError(words)


def go_on_with_study(kind: str, folder: Path, processes: int | None) -> None:
    """The study in this folder, which must be one that the command makes."""
    from covey.runs.study.plan import read_plan

    plan = read_plan(folder)
    if plan.kind != kind:
        raise UserError(
            f"{folder} holds a study of covey {plan.kind}; resume with: covey {plan.kind} --resume {folder}"
        )
    make_study(plan, folder, processes)


def show_study(replicas: Replicas) -> None:
    """The table at the end; a line that is too long for the terminal is better than a number cut off."""
    from covey.report.replicas import against_words, replica_columns
    from covey.report.table import rich_table
    from covey.report.wording import metric_title
    from covey.terminal import Console

    title = metric_title(replicas.metric)
    table = rich_table(replica_columns(replicas), f"{title[0].upper()}{title[1:]}; {replicas.in_words()}")
    screen = Console()
    wanted = screen.measure(table, options=screen.options.update(max_width=1000)).maximum
    Console(width=max(screen.width, wanted)).print(table)
    if words := against_words(replicas):
        screen.print(words)
