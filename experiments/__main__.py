"""`python -m experiments`: reproduce the papers' tables and figures, and compare the field's methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli import main

BENCHMARK = "heterogeneity/benchmark"

ScaleOption = Annotated[str, typer.Option(help="smoke (seconds), small (minutes) or full (as in the paper).")]
SeedsOption = Annotated[int | None, typer.Option(help="How many seeds. [default: the experiment's]")]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Try it out there, and store nothing. [default: runs/reproduce/..., and stored]"),
]

app = typer.Typer(
    name="experiments",
    help="The papers' tables and figures, with the papers' numbers beside ours.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command()
def reproduce(
    experiment: Annotated[
        str | None,
        typer.Argument(
            help="PAPER/TABLE, e.g. fedavg/mnist, or a file of your own, e.g. mine/board.toml.",
            show_default=False,
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    scale: ScaleOption = "small",
    seeds: SeedsOption = None,
    out: OutOption = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run this row alone, and keep the others as stored; may be given several times."),
    ] = None,
    more: Annotated[
        bool, typer.Option("--more", help="Run what is not stored: further seeds, cases and rows.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Run one cell of the stored result (of --only's rows) again and compare."
        ),
    ] = False,
) -> None:
    """Run an experiment and print the paper's numbers beside ours; interrupted, it is resumed."""
    from experiments.reproduction import list_experiments, print_check, reproduce_experiment
    from experiments.spec import experiment_named

    if list_ or experiment is None:
        list_experiments()
        return
    experiment = experiment_named(experiment)
    if check:
        if not print_check(experiment, scale, only or ()):
            raise typer.Exit(1)
        return
    reproduce_experiment(experiment, scale=scale, seeds=seeds, out=out, rows=tuple(only or ()), more=more)


@app.command()
def benchmark(
    scale: ScaleOption = "small",
    seeds: SeedsOption = None,
    out: OutOption = None,
    stored: Annotated[
        bool, typer.Option("--stored", help="Only write the page of the stored result.")
    ] = False,
    page: Annotated[Path, typer.Option(help="Where the page with its pictures goes.")] = Path(
        "runs/benchmark"
    ),
) -> None:
    """Compare methods on many heterogeneous fleets: heat map, ranks, tests; interrupted, it is resumed."""
    from covey.errors import UserError
    from covey.terminal import say
    from experiments.benchmark_page import write_page
    from experiments.reproduction import reproduce_experiment
    from experiments.result import read_stored

    if stored and (seeds or out):
        raise UserError("--stored runs nothing; it takes no --seeds and no --out")
    if stored:
        result = read_stored(BENCHMARK, scale)
    else:
        result = reproduce_experiment(BENCHMARK, scale=scale, seeds=seeds, out=out)
    for place in write_page(result, page):
        say(f"wrote {place}")


@app.command()
def advice() -> None:
    """Write what `covey advise` concludes from, out of the stored results, into the package."""
    from covey.files import write_atomically
    from covey.runs.advise import EVIDENCE
    from experiments.advice import text

    write_atomically(EVIDENCE, text())


if __name__ == "__main__":
    main(app)
