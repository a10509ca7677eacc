"""`covey reproduce`: an experiment of a paper, with the paper's numbers beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(reproduce)


def reproduce(
    experiment: Annotated[
        str | None,
        typer.Argument(
            help="PAPER/TABLE, e.g. fedavg/mnist, or a file of your own, e.g. mine/board.toml.",
            show_default=False,
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    scale: Annotated[
        str, typer.Option(help="smoke (seconds), small (minutes) or full (as in the paper).")
    ] = "small",
    seeds: Annotated[int | None, typer.Option(help="How many seeds. [default: the experiment's]")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Try it out there, and store nothing. [default: runs/reproduce/..., and stored]"),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run this row alone, and keep the others as stored; may be given several times."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run one cell of the stored result again and compare.")
    ] = False,
) -> None:
    """Run an experiment and print the paper's numbers beside ours; interrupted, it goes on where it was."""
    from covey.cli.reproduction import list_experiments, print_check, reproduce_experiment
    from covey.experiments.spec import experiment_named

    if list_ or experiment is None:
        list_experiments()
        return
    experiment = experiment_named(experiment)
    if check:
        if not print_check(experiment, scale):
            raise typer.Exit(1)
        return
    reproduce_experiment(experiment, scale=scale, seeds=seeds, out=out, rows=tuple(only or ()))
