"""`covey tune`: settings chosen by Optuna on validation data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli.own_table import ClientOption, DataOption, LabelOption, with_own_table
from covey.cli.run import (
    DatasetOption,
    OutOption,
    ProcessesOption,
    ResumeOption,
    RoundsOption,
    SeedOption,
    SetOption,
    gathered,
)
from covey.errors import RunError, UserError
from covey.files import new_run_folder
from covey.terminal import console, live_many, say

if TYPE_CHECKING:
    from covey.runs.study.tuning import Tuned


def register(app: typer.Typer) -> None:
    app.command()(tune)


def tune(
    methods: Annotated[
        list[str] | None,
        typer.Argument(help="Methods, and one TOML file with the fleet.", show_default=False),
    ] = None,
    trials: Annotated[int, typer.Option(help="How many, for each method.", min=1)] = 40,
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="What to try: table.key=low..high or table.key=value,value. Repeatable. [default: the training's main "
            "settings and the method's own]",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            help="What to tune for, such as local-test/loss-mean. [default: the clients' mean accuracy]"
        ),
    ] = "",
    validation: Annotated[
        float, typer.Option(help="Share of each client's training data that trials are measured on.")
    ] = 0.2,
    sampler: Annotated[str, typer.Option(help="Optuna's: tpe, random, gp, cmaes or qmc.")] = "tpe",
    pruner: Annotated[str, typer.Option(help="Optuna's: median, hyperband, halving or none.")] = "median",
    test_seeds: Annotated[
        int,
        typer.Option(help="Seeds for defaults and best settings on test data afterwards; 0: none.", min=0),
    ] = 3,
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
    """Choose settings with Optuna, on a validation part of each client's training data, never on test data.

    Every method has the same number of trials, the defaults being the first. The best settings are a file for
    covey run; optuna.db in the folder can be opened with Optuna's dashboard.
    """
    from covey.runs.study.tuning import Tuning, read_tuning
    from covey.runs.study.tuning import tune as run_trials

    if resume is not None:
        if any((methods, over, dataset, data, set_, out, seed, rounds)):
            raise UserError("--resume uses the folder's own tuning; it takes no other option")
        tuning, folder = read_tuning(resume), resume
    else:
        files = [name for name in methods or () if name.endswith(".toml")]
        names = tuple(dict.fromkeys(name for name in methods or () if not name.endswith(".toml")))
        if len(files) > 1:
            raise UserError(f"tune takes one file with the fleet, not {len(files)}: {', '.join(files)}")
        own = with_own_table(set_, data, label, client, dataset)
        tables = gathered(Path(files[0]) if files else None, None, dataset, own, seed, rounds)
        names = names or (str(tables.get("method", {}).get("name", "fedavg")),)
        tuning = Tuning(
            methods=names,
            tables=tables,
            trials=trials,
            over=tuple(over or ()),
            sampler=sampler,
            pruner=pruner,
            validation=validation,
            metric=metric,
            test_seeds=test_seeds,
        )
        folder = out or new_run_folder("tune")
    try:
        found = run_trials(tuning, folder, show=live_many, say=say, processes=processes)
    except KeyboardInterrupt:
        console.print(
            f"covey: interrupted; resume with: covey tune --resume {folder}", highlight=False, soft_wrap=True
        )
        raise typer.Exit(130) from None
    show_tuned(found, tuning.measured())
    if not any(one.complete for one in found):
        raise RunError("trials of every method failed; their reasons are in optuna.db")


def show_tuned(found: list[Tuned], metric: str) -> None:
    """What each method's trials found, how much each setting mattered, and what it is worth on test data."""
    from rich.table import Table

    from covey.cli.study import show_study
    from covey.report.wording import metric_title, show_value
    from covey.terminal import Console

    screen = Console()
    title = f"{metric_title(metric)}, on validation data in place of test data"
    table = Table(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    heads = ("defaults", "best", "trials", "of them pruned", "failed", "refused", "rounds in all")
    for head in ("method", *heads, "file"):
        table.add_column(head, justify="left" if head in ("method", "file") else "right")
    for one in found:
        ends = [show_value(metric, value) for value in (one.default_value, one.value)]
        trials = one.complete + one.pruned + one.failed
        counts = [f"{count:,}" for count in (trials, one.pruned, one.failed, one.refused, one.rounds)]
        table.add_row(one.method, *ends, *counts, str(one.file))
    screen.print(table)
    if any(one.refused for one in found):
        screen.print("refused: combinations that do not go together; others were drawn in their place")
    for one in found:
        table = Table(
            title=f"{one.method}: how much each setting mattered",
            title_justify="left",
            title_style="bold",
            box=None,
        )
        for head in ("setting", "mattered", "best", "tried"):
            table.add_column(head, justify="left" if head in ("setting", "tried") else "right")
        order = sorted(one.space, key=lambda key: -one.importance.get(key, 0.0))
        for key in order:
            share = one.importance.get(key)
            best = one.params[key]
            words = f"{best:.4g}" if isinstance(best, float) else str(best)
            table.add_row(key, "–" if share is None else f"{share:.0%}", words, str(one.space[key]))
        screen.print(table)
        if one.tested is not None and one.tested.runs:
            screen.print(f"{one.method} on test data", style="bold")
            show_study(one.tested.replicas)
