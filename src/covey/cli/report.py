"""`covey report`: the page for one run, or one page for several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from covey.errors import UserError
from covey.terminal import say


def register(app: typer.Typer) -> None:
    app.command()(report)


def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="The page to write. [default: report.html in the first folder]")
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            help="Log the runs to a tracker instead: tensorboard, mlflow, wandb or your own. Repeatable."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="With --to: a setting of the tracker, key=value. Repeatable."),
    ] = None,
) -> None:
    """Write the report page of one or several run folders, and print their table; or tell a tracker of them."""
    if to:
        tell_trackers(folders, to, set_ or [])
        return
    if set_:
        raise UserError("--set goes with --to: a report has no settings")
    from covey.folder.read import read_run
    from covey.report.page import write_report
    from covey.report.table import labels_of, summary_table, unfinished
    from covey.terminal import Console

    runs = [read_run(folder) for folder in folders]
    page = out or folders[0] / "report.html"
    write_report(runs, page)
    Console().print(summary_table(runs))
    for sentence in unfinished(runs, labels_of(runs)):
        Console().print(sentence, highlight=False)
    Console(stderr=True).print(f"report: {page}", highlight=False)


def tell_trackers(folders: list[Path], names: list[str], assignments: list[str]) -> None:
    """All runs in the folders, or beneath them, told to each tracker."""
    from covey.runs.trackers.replay import run_folders, told_after
    from covey.settings.toml import with_setting

    settings: dict[str, Any] = {}
    for assignment in assignments:
        with_setting(settings, assignment)
    runs = [run for folder in folders for run in run_folders(folder)]
    for name in names:
        for run in runs:
            told_after(run, name, settings)
        say(f"{name}: told of {len(runs)} run{'s' if len(runs) > 1 else ''}")
