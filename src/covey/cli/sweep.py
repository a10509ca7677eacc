"""`covey sweep`: a grid of settings, with seeds."""

from __future__ import annotations

from typing import Annotated

import typer

from covey.cli.own_table import ClientOption, DataOption, LabelOption, with_own_table
from covey.cli.run import (
    DatasetOption,
    FileArgument,
    MethodOption,
    OutOption,
    ProcessesOption,
    ResumeOption,
    RoundsOption,
    SeedOption,
    SeedsOption,
    SetOption,
    announce,
    gathered,
)
from covey.cli.study import go_on_with_study, make_study
from covey.errors import UserError
from covey.files import new_run_folder


def register(app: typer.Typer) -> None:
    app.command()(sweep)


def sweep(
    file: FileArgument = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting and the values to try: table.key=value,value. Repeatable.", show_default=False
        ),
    ] = None,
    seeds: SeedsOption = None,
    method: MethodOption = None,
    dataset: DatasetOption = None,
    data: DataOption = None,
    label: LabelOption = None,
    client: ClientOption = None,
    set_: SetOption = None,
    out: OutOption = None,
    seed: SeedOption = None,
    rounds: RoundsOption = None,
    processes: ProcessesOption = None,
    resume: ResumeOption = None,
) -> None:
    """Run every combination of some settings' values, each with several seeds: one table, one report.

    The numbers are measured on test data; to choose settings, give --set data.validation=0.2, or use covey tune.
    """
    from covey.runs.study.grid import sweep_plan

    if resume is not None:
        if any((file, over, method, dataset, data, set_, out, seed, rounds, seeds)):
            raise UserError("--resume uses the folder's own study; it takes no other option")
        go_on_with_study("sweep", resume, processes)
        return
    own = with_own_table(set_, data, label, client, dataset)
    plan = sweep_plan(gathered(file, method, dataset, own, seed, rounds), over or [], seeds or 1)
    announce(next(iter(plan.configs.values())))
    make_study(plan, out or new_run_folder("sweep"), processes)
