"""What `covey reproduce` does: runs, table, figure, stored result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from covey.cli.progress import live, say
from covey.errors import UserError
from covey.experiments.execute import execute_runs, execute_study, safe
from covey.experiments.result import result_of, store, table_cells
from covey.experiments.smooth import running_mean, smoothed
from covey.experiments.spec import Experiment, all_experiments, read_experiment
from covey.simulate import Interrupted


def list_experiments() -> None:
    """Every experiment with its title."""
    table = Table(box=None, pad_edge=False)
    table.add_column("experiment", style="bold")
    table.add_column("what it reproduces")
    for name in all_experiments():
        experiment = read_experiment(name, "small")
        table.add_row(name, f"{experiment.title} ({experiment.paper})")
    Console().print(table)


def reproduce_experiment(name: str, *, scale: str, seeds: int | None, out: Path | None) -> dict[str, Any]:
    """Runs the experiment, prints its table, draws its figure and stores the result."""
    experiment = read_experiment(name, scale, seeds)
    if not experiment.study and not experiment.rows:
        raise UserError(f"{experiment.file} has neither runs nor a study")
    folder = out or Path("runs") / "reproduce" / name / scale
    started = time.perf_counter()
    try:
        if experiment.study:
            values, curves = execute_study(experiment, folder, say)
        else:
            runs = folder if out else Path("runs") / "reproduce" / experiment.runs_in / scale
            values, curves = execute_runs(experiment, runs, live, say)
    except (KeyboardInterrupt, Interrupted):
        say(f"interrupted; the same command goes on: covey reproduce {name} --scale {scale}")
        raise KeyboardInterrupt from None
    result = result_of(experiment, values, time.perf_counter() - started)
    places = store(result, folder)
    print_table(result)
    pictures = draw(experiment, values, curves, folder)
    for place in [*places, *pictures]:
        say(f"wrote {place}")
    return result


def print_table(result: Mapping[str, Any]) -> None:
    """Ours beside the paper's."""
    head, lines = table_cells(result)
    plural = "s" if result["seeds"] > 1 else ""
    table = Table(
        title=f"{result['title']}; {result['scale']} scale, {result['seeds']} seed{plural}",
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


def draw(experiment: Experiment, values: Any, curves: Any, folder: Path) -> list[Path]:
    """The experiment's figure: curves with the mean over seeds, or bars of one column."""
    from covey.report.figures import draw_bars, draw_curves

    figure, drawn = experiment.figure, []
    for case in values:
        path = folder / f"{safe(case or 'figure')}.png"
        title = experiment.title + (f": {case}" if case else "")
        if figure.get("kind") == "curves" and curves.get(case):
            mean = {name: mean_curve(found) for name, found in curves[case].items()}
            if "mean_of" in figure:
                mean = {name: running_mean(x, y, figure["mean_of"]) for name, (x, y) in mean.items()}
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
                row: [v for v in cells.get(column, []) if v is not None]
                for row, cells in values[case].items()
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
