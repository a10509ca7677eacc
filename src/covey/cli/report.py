"""`covey report`: the page for one run, or one page for several."""

from pathlib import Path
from typing import Any

from covey.errors import UserError
from covey.terminal import say


def report(
    folders: list[Path],
    *,
    out: Path | None = None,
    to: list[str] | None = None,
    set_: list[str] | None = None,
) -> None:
    """Write the report page of one or several run folders, and print their table; or log them to a tracker.

    Args:
        folders: run folders, or that of a comparison or study.
        out: the page to write. [default: report.html in the first folder]
        to: log the runs to a tracker instead: tensorboard, mlflow, wandb or your own. Repeatable.
        set_: with --to: a setting of the tracker, key=value. Repeatable.
    """
    if to:
        tell_trackers(folders, to, set_ or [])
        return
    if set_:
        raise UserError("--set goes with --to: a report has no settings")
    from covey.folder.read import read_run
    from covey.report.page import write_report
    from covey.report.table import run_labels, summary_table, unfinished
    from covey.runs.study.plan import STUDY_FILE as PLAN
    from covey.runs.trackers.replay import run_folders
    from covey.terminal import Console

    page = out or folders[0] / "report.html"
    if len(folders) == 1 and (folders[0] / PLAN).is_file():
        report_of_study(folders[0], page)
        return
    # in the order in which they began, as a comparison's table has them
    found = [
        sorted(run_folders(one), key=lambda run: (run / "config.toml").stat().st_mtime) for one in folders
    ]
    runs = [read_run(run) for part in found for run in part]
    write_report(runs, page)
    Console().print(summary_table(runs))
    for sentence in unfinished(runs, run_labels(runs)):
        Console().print(sentence)
    Console(stderr=True).print_words(f"report: {page}")


def report_of_study(folder: Path, page: Path) -> None:
    """The page of a study with its seeds, as it is written at its end."""
    from covey.cli.study import show_study
    from covey.report.page import write_report
    from covey.runs.study.execute import study_in

    replicas = study_in(folder).replicas
    write_report(replicas.firsts, page, replicas)
    show_study(replicas)
    say(f"report: {page}")


def tell_trackers(folders: list[Path], names: list[str], assignments: list[str]) -> None:
    """Logs all runs in the folders, or beneath them, to each tracker."""
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
