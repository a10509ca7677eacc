"""`covey report`: the page for one run, or one page for several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(report)


def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="The page to write. [default: report.html in the first folder]")
    ] = None,
) -> None:
    """Write the report page of one or several run folders, and print their table."""
    from covey.report.folder import read_run
    from covey.report.page import write_report
    from covey.report.table import summary_table
    from covey.terminal import Console

    runs = [read_run(folder) for folder in folders]
    page = out or folders[0] / "report.html"
    write_report(runs, page)
    Console().print(summary_table(runs))
    Console(stderr=True).print(f"report: {page}", highlight=False)
