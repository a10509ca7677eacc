"""`covey demo`: what each of the five ideas is for, in one table."""

from pathlib import Path

from covey.cli.run import interruptible
from covey.errors import RunError, UserError
from covey.files import new_run_folder
from covey.settings.ranges import Count
from covey.terminal import console, live_many, say

WIDTH = 130  # where the output is no terminal


def demo(
    *,
    seeds: Count | None = None,
    out: Path | None = None,
    processes: Count | None = None,
    resume: Path | None = None,
) -> None:
    """What each of the five ideas is for: against the baseline it is meant to beat, on a fleet where it matters.

    Args:
        resume: resume the demo in this folder.
    """
    from covey.report.table import rich_table
    from covey.runs.study.execute import execute
    from covey.runs.study.plan import read_plan
    from covey.runs.study.story import read_story, story_columns
    from covey.terminal import Console

    if resume is not None and (out or seeds):
        raise UserError("--resume uses the folder's own demo; it takes neither --out nor --seeds")
    told = read_story(seeds=read_plan(resume).seeds if resume else seeds)
    folder = resume or out or new_run_folder("demo")
    with interruptible():
        done = execute(told.plan, folder, show=live_many, say=say, processes=processes, page=False)
    if words := done.failures():
        raise RunError(words)
    first = min(config.top.seed for config in told.plan.configs.values())
    last = first + told.plan.seeds - 1
    count = f"{told.plan.seeds} seeds ({first} to {last})" if last > first else f"seed {first} only"
    title = f"{told.title}; {count}: mean ± standard deviation, comparisons seed by seed with 95 % intervals"
    table = rich_table(story_columns(told, done), title)
    for column in table.columns:
        column.no_wrap = False
    table.show_lines, table.padding = True, (0, 2, 1, 0)
    screen = Console()
    Console(width=screen.width if screen.is_terminal else max(screen.width, WIDTH)).print(table)
    console.print(f"every run with its curves: covey watch {folder}")
