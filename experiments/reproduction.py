"""What `python -m experiments reproduce` does: runs, table, figure, stored result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from covey.errors import UserError
from covey.report.seeds import number_in_words, value_of
from covey.runs.run import Interrupted
from covey.terminal import Console, live, say
from experiments.check import check_experiment
from experiments.execute import Made, StoredRuns, execute_runs, execute_study, safe
from experiments.only import kept_of, only, rows_named, stored_runs, together, tuning_of
from experiments.origin import require_clean
from experiments.result import read_stored, result_of, seeds_in_words, store, table_cells
from experiments.smooth import kernel_smoothed, smoothed
from experiments.spec import Experiment, all_experiments, read_experiment
from experiments.tuning import tune_rows, with_tuned


def list_experiments() -> None:
    """Every experiment with its title."""
    table = Table(box=None, pad_edge=False)
    table.add_column("experiment", style="bold")
    table.add_column("what it reproduces")
    for name in all_experiments():
        experiment = read_experiment(name, "small")
        table.add_row(name, f"{experiment.title} ({experiment.paper})")
    Console().print(table)


def reproduce_experiment(
    name: str,
    *,
    scale: str,
    seeds: int | None,
    out: Path | None,
    rows: Sequence[str] = (),
    more: bool = False,
) -> dict[str, Any]:
    """Runs the experiment, prints its table, draws its figure and stores the result (a try with `out` only there).

    With `rows` only these are run, and all others stay as they are stored; times to 90 % of the best too, which are
    to the best of then. With `more` only what is not stored is run, with the settings that tuning found then.
    """
    experiment = whole = read_experiment(name, scale, seeds)
    if not experiment.study and not experiment.rows:
        raise UserError(f"{experiment.file} has neither runs nor a study")
    stays = Made()
    tuned_before: list[dict[str, Any]] = []
    had: StoredRuns = {}
    rows = rows_named(whole, rows)
    if rows:
        experiment, stored = only(whole, rows), read_stored(name, scale)
        stays, tuned_before = kept_of(whole, rows, stored), tuning_of(rows, stored)
    elif more:
        stored = read_stored(name, scale)
        had, tuned_before = stored_runs(whole, stored), stored.get("tuning", [])
    keep = scale != "smoke" and out is None
    if keep:
        require_clean(name)
    folder = out or Path("runs") / "reproduce" / name / scale
    tuning: list[dict[str, Any]] = []
    try:
        if experiment.study:
            made = execute_study(experiment, folder, say)
        else:
            runs = folder if out else Path("runs") / "reproduce" / experiment.runs_in / scale
            found = tune_rows(experiment, runs, live, say) if experiment.tune and not more else []
            tuning = tuned_before if more else [one.plain() for one in found]
            made = execute_runs(with_tuned(experiment, tuning), runs, live, say, stays.values, had)
    except (KeyboardInterrupt, Interrupted):
        again = "".join(f" --only {row!r}" for row in rows)
        say(
            f"interrupted; the same command continues: python -m experiments reproduce {name} --scale {scale}{again}"
        )
        raise KeyboardInterrupt from None
    if rows:
        experiment, made, tuning = whole, together(whole, stays, made), [*tuned_before, *tuning]
    result = {**result_of(experiment, made), **({"tuning": tuning} if tuning else {})}
    places = store(result, folder, keep=keep)
    print_table(result)
    pictures = draw(experiment, made, folder)
    for place in [*places, *pictures]:
        say(f"wrote {place}")
    return result


def print_check(name: str, scale: str, rows: Sequence[str] = ()) -> bool:
    """Makes one run of the stored result again; prints both and what has changed since; whether they are the same."""
    check = check_experiment(name, scale, rows)
    what = " ".join(filter(None, (check.run["case"], check.run["row"]))) or "the study"
    table = Table(title=f"{name} at {scale} scale, {what}, seed {check.run['seed']}", title_justify="left")
    for column in ("", "stored", "now"):
        table.add_column(column, justify="right" if column else "left")
    for column in check.stored:
        style = "bold" if column in check.differs else ""
        numbers = (check.stored[column], check.found.get(column))
        table.add_row(column, *(number_in_words([number]) for number in numbers), style=style)
    Console().print(table)
    for key in check.changed:
        say(f"{key}: stored {check.run.get(key, 'not known')}, now {check.now[key]}")
    same = f"the same numbers with {check.under}; other ones today" if check.under else "the same numbers"
    say(f"differs: {', '.join(check.differences)}" if check.differs else same)
    return not check.differs


def print_table(result: Mapping[str, Any]) -> None:
    """Ours beside the paper's."""
    head, lines = table_cells(result)
    table = Table(
        title=f"{result['title']}; {result['scale']} scale, {seeds_in_words(result)}",
        title_justify="left",
    )
    for number, column in enumerate(head):
        text = number < (2 if head[0] == "case" else 1)
        table.add_column(
            column, justify="left" if text else "right", style="dim" if column == "paper" else ""
        )
    for line in lines:
        table.add_row(*line)
    # A number that is cut off is worse than a line that is too long for the terminal.
    console = Console()
    wanted = console.measure(table, options=console.options.update(max_width=1000)).maximum
    Console(width=max(console.width, wanted)).print(table)
    if result["note"]:
        Console().print(result["note"], highlight=False)


def draw(experiment: Experiment, made: Made, folder: Path) -> list[Path]:
    """The experiment's figure: curves with the mean over seeds, or bars of one column."""
    from covey.report.figures import draw_bars, draw_curves

    figure, drawn = experiment.figure, []
    for case, rows in made.values.items():
        path = folder / f"{safe(case or 'figure')}.png"
        title = experiment.title + (f": {case}" if case else "")
        if figure.get("kind") == "curves" and made.curves.get(case):
            mean = {name: mean_curve(found) for name, found in made.curves[case].items()}
            if "kernel" in figure:
                mean = {name: (x, kernel_smoothed(y, figure["kernel"])) for name, (x, y) in mean.items()}
            if "smooth" in figure:
                mean = {name: (x, smoothed(x, y, figure["smooth"])) for name, (x, y) in mean.items()}
            draw_curves(
                mean,
                path=path,
                x_label=figure.get("x_label", figure.get("x", "round")),
                y_label=figure.get("y_label", figure.get("y", "")),
                title=title,
                log_x=figure.get("log_x", False),
            )
            drawn.append(path)
        elif figure.get("kind") == "bars":
            column = figure["column"]
            bars = {
                row: [value_of(v) for v in cells.get(column, []) if v is not None]
                for row, cells in rows.items()
            }
            means = {row: float(np.mean(found)) for row, found in bars.items() if found}
            draw_bars(means, path=path, y_label=column, title=title)
            drawn.append(path)
    return drawn


def mean_curve(found: list[dict[str, list[float]]]) -> tuple[list[float], list[float]]:
    """The mean of several seeds' curves, at the places of the first, as far as all go."""
    length = min(len(curve["x"]) for curve in found)
    x = np.mean([curve["x"][:length] for curve in found], axis=0)
    y = np.mean([curve["y"][:length] for curve in found], axis=0)
    return x.tolist(), y.tolist()
