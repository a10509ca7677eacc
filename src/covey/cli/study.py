"""`covey sweep` and `covey tune`, and what they and `covey compare --seeds` share: make a study, print its table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from covey.cli.command import RunOptions
from covey.cli.run import announce, gathered_tables, interruptible
from covey.errors import RunError, UserError
from covey.files import new_run_folder
from covey.settings.ranges import Count, Natural
from covey.terminal import console, live_many, say

if TYPE_CHECKING:
    from covey.report.replicas import Replicas
    from covey.runs.study.plan import StudyPlan
    from covey.runs.study.tuning import Tuned


def sweep(
    file: Path | None = None,
    *,
    over: list[str] | None = None,
    seeds: Count | None = None,
    method: str | None = None,
    options: RunOptions = RunOptions(),
    out: Path | None = None,
    processes: Count | None = None,
    resume: Path | None = None,
) -> None:
    """Run every combination of some settings' values, each with several seeds: one table, one report.

    The numbers are measured on test data; to choose settings, give --set data.validation=0.2, or use covey tune.

    Args:
        over: a setting and the values to try: table.key=value,value. Repeatable.
    """
    from covey.runs.study.grid import sweep_plan

    if resume is not None:
        if any((file, over, method, out, seeds, options != RunOptions())):
            raise UserError("--resume uses the folder's own study; it takes no other option")
        go_on_with_study("sweep", resume, processes)
        return
    plan = sweep_plan(gathered_tables(file, options, method), over or [], seeds or 1)
    announce(next(iter(plan.configs.values())))
    make_study(plan, out or new_run_folder("sweep"), processes)


def tune(
    methods: list[str] | None = None,
    *,
    trials: Count = 40,
    over: list[str] | None = None,
    metric: str = "",
    validation: float = 0.2,
    sampler: str = "tpe",
    pruner: str = "median",
    test_seeds: Natural = 3,
    options: RunOptions = RunOptions(),
    out: Path | None = None,
    processes: Count | None = None,
    resume: Path | None = None,
) -> None:
    """Choose settings with Optuna, on a validation part of each client's training data, never on test data.

    Every method has the same number of trials, the defaults being the first. The best settings are a file for
    covey run; optuna.db in the folder can be opened with Optuna's dashboard.

    Args:
        methods: methods, and one TOML file with the fleet.
        trials: how many, for each method.
        over: what to try: table.key=low..high or table.key=value,value. Repeatable. [default: the training's main
            settings and the method's own]
        metric: what to tune for, such as local-test/loss-mean. [default: the clients' mean accuracy]
        validation: share of each client's training data that trials are measured on.
        sampler: Optuna's: tpe, random, gp, cmaes or qmc.
        pruner: Optuna's: median, hyperband, halving or none.
        test_seeds: seeds for defaults and best settings on test data afterwards; 0: none.
    """
    from covey.runs.study.tuning import Tuning, read_tuning
    from covey.runs.study.tuning import tune as run_trials

    if resume is not None:
        if any((methods, over, out, options != RunOptions())):
            raise UserError("--resume uses the folder's own tuning; it takes no other option")
        tuning, folder = read_tuning(resume), resume
    else:
        if not any((methods, options.dataset, options.data, over, options.set_)):
            raise UserError(
                "tune needs a method or a file with the fleet, such as covey tune covey examples/my-fleet.toml; it "
                f"makes {trials} runs of each method (--trials)"
            )
        files = [name for name in methods or () if name.endswith(".toml")]
        names = tuple(dict.fromkeys(name for name in methods or () if not name.endswith(".toml")))
        if len(files) > 1:
            raise UserError(f"tune takes one file with the fleet, not {len(files)}: {', '.join(files)}")
        tables = gathered_tables(Path(files[0]) if files else None, options)
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
    with interruptible():
        found = run_trials(tuning, folder, show=live_many, say=say, processes=processes)
    show_tuned(found, tuning.measured())
    if not any(one.complete for one in found):
        raise RunError("trials of every method failed; their reasons are in optuna.db")


def show_tuned(found: list[Tuned], metric: str) -> None:
    """What each method's trials found, how much each setting mattered, and what it is worth on test data."""
    from rich.table import Table

    from covey.report.wording import metric_title, show_value
    from covey.terminal import Console

    screen = Console()
    title = f"{metric_title(metric)}, on validation data in place of test data"
    table = Table(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    heads = ("defaults", "best", "trials", "of them pruned", "failed", "refused", "rounds in all")
    for head in ("method", *heads):
        table.add_column(head, justify="left" if head == "method" else "right")
    for one in found:
        ends = [show_value(metric, value) for value in (one.default_value, one.value)]
        trials = one.complete + one.pruned + one.failed
        counts = [f"{count:,}" for count in (trials, one.pruned, one.failed, one.refused, one.rounds)]
        table.add_row(one.method, *ends, *counts)
    screen.print_whole(table)
    for one in found:
        if one.complete:  # else there is no best one
            screen.print(f"{one.method}: covey run {one.file}", soft_wrap=True)
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


def make_study(plan: StudyPlan, folder: Path, processes: int | None = None) -> None:
    """Makes the study, or what is left of it, and shows what it found."""
    from covey.runs.config import too_few_rounds
    from covey.runs.study.execute import execute

    with interruptible():
        done = execute(plan, folder, show=live_many, say=say, processes=processes)
    if done.runs:
        show_study(done.replicas)
        for label, config in plan.configs.items():
            if words := too_few_rounds(config):  # of a part of a forest no table says that it is one
                console.print(f"{label}: {words}")
        console.print_words(f"report: {folder / 'report.html'}")
    if words := done.failures():
        raise RunError(words)


def go_on_with_study(kind: str, folder: Path, processes: int | None) -> None:
    """The study in this folder, which must be one that the command makes."""
    from covey.runs.study.plan import read_plan

    plan = read_plan(folder)
    if plan.kind != kind:
        raise UserError(
            f"{folder} holds a study of covey {plan.kind}; resume with: covey {plan.kind} --resume {folder}"
        )
    make_study(plan, folder, processes)


def show_study(replicas: Replicas) -> None:
    """The table at the end, and what was found."""
    from covey.report.replicas import against_words, odd_words, replica_columns, verdict
    from covey.report.table import rich_table
    from covey.report.wording import metric_title
    from covey.terminal import Console

    title = metric_title(replicas.metric)
    table = rich_table(replica_columns(replicas), f"{title[0].upper()}{title[1:]}; {replicas.in_words()}")
    screen = Console()
    screen.print_whole(table)
    for words in filter(None, (against_words(replicas), verdict(replicas), odd_words(replicas.every))):
        screen.print(words)
