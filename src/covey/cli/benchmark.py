"""`covey benchmark`: the field's methods on every kind of unlikeness, with ranks and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXPERIMENT = "unlike/benchmark"


def register(app: typer.Typer) -> None:
    app.command()(benchmark)


def benchmark(
    scale: Annotated[str, typer.Option(help="smoke (a minute), small (hours) or full.")] = "small",
    seeds: Annotated[int | None, typer.Option(help="How many seeds. [default: the experiment's]")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Try it out there, and store nothing. [default: runs/reproduce/..., and stored]"),
    ] = None,
    stored: Annotated[
        bool, typer.Option("--stored", help="Only write the page of the stored result.")
    ] = False,
    page: Annotated[Path, typer.Option(help="Where the page with its pictures goes.")] = Path(
        "runs/benchmark"
    ),
) -> None:
    """Compare methods on many fleets of unlike clients: heat map, ranks, tests; interrupted, it goes on."""
    from covey.cli.benchmark_page import write_page
    from covey.cli.reproduction import reproduce_experiment
    from covey.errors import UserError
    from covey.experiments.result import read_stored
    from covey.progress import say

    if stored and (seeds or out):
        raise UserError("--stored runs nothing; it takes no --seeds and no --out")
    if stored:
        result = read_stored(EXPERIMENT, scale)
    else:
        result = reproduce_experiment(EXPERIMENT, scale=scale, seeds=seeds, out=out)
    for place in write_page(result, page):
        say(f"wrote {place}")
