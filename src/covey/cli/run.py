"""`covey run` and `covey compare`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from covey.cli.command import FleetOptions, RunOptions
from covey.errors import RunError, UserError
from covey.files import new_run_folder
from covey.settings.own_code import bare_name, data_name
from covey.settings.ranges import Count, Natural
from covey.terminal import console, live, say

if TYPE_CHECKING:
    from covey.privacy.longer import LongerBudget
    from covey.runs.config import Config
    from covey.runs.results import Run


def run(
    file: Path | None = None,
    *,
    method: str | None = None,
    options: RunOptions = RunOptions(),
    out: Path | None = None,
    resume: Path | None = None,
    engine: str | None = None,
    address: str | None = None,
    epsilon: str | None = None,
    changed_code: bool = False,
    from_: Natural | None = None,
) -> None:
    """Run one method and write a run folder with its report.

    Args:
        resume: resume the run in this folder; with --rounds, up to that many in all.
        engine: where the clients are simulated: local or ray. [default: local]
        address: the Ray cluster. [default: RAY_ADDRESS, or one started here]
        epsilon: with --resume and more --rounds of a private run: what all rounds may cost, a number, or same-noise
            (epsilon is then what that costs), or kept (with far more noise).
        from_: with --resume: go back to the kept checkpoint of this round.
    """
    from covey.parts.measure import seldom_measured
    from covey.runs.config import resolve
    from covey.runs.run import run_config

    if resume is not None:
        others = (file, method, out, engine, address)
        if any(other is not None for other in others) or replace(options, rounds=None) != RunOptions():
            raise UserError(
                "--resume uses the folder's own settings; it takes no other option but --rounds, --epsilon and "
                "--from"
            )
        go_on(resume, options.rounds, budget_of(epsilon), changed_code, from_)
        return
    if changed_code:
        raise UserError("--changed-code goes with --resume: a new run begins with the code as it is")
    if epsilon is not None:
        raise UserError("--epsilon goes with --resume and --rounds; a new run has --set private.epsilon=...")
    if from_ is not None:
        raise UserError("--from goes with --resume: a new run begins with round 1")
    options = replace(options, set_=[*(options.set_ or ()), *engine_settings(engine, address)])
    config = resolve(seldom_measured(gathered_tables(file, options, method)))
    folder = out or new_run_folder(config.method_name)
    announce(config)
    with live(config.method_name, config.top.rounds) as watch, interruptible():
        done = run_config(config, folder, watchers=[watch], say=say)
    show([done])


def go_on(
    folder: Path, rounds: int | None, epsilon: LongerBudget | None, changed_code: bool, from_round: int | None
) -> None:
    """Continues the run in a folder, to its end or up to that many rounds."""
    from covey.runs.config import config_in
    from covey.runs.run import resume

    with live(folder.name, rounds or config_in(folder).top.rounds) as watch, interruptible():
        done = resume(
            folder,
            rounds=rounds,
            epsilon=epsilon,
            watchers=[watch],
            say=say,
            changed_code=changed_code,
            from_round=from_round,
        )
    show([done])


def budget_of(epsilon: str | None) -> LongerBudget | None:
    """The option --epsilon as it is meant."""
    if epsilon == "same-noise":
        return "same-noise"
    if epsilon == "kept":
        return "kept"
    try:
        return None if epsilon is None else float(epsilon)
    except ValueError:
        raise UserError(f"--epsilon is {epsilon!r}; allowed: a number, same-noise, kept") from None


def engine_settings(engine: str | None, address: str | None) -> list[str]:
    """The options --engine and --address as settings."""
    if engine not in (None, "local", "ray"):
        raise UserError(f"--engine is {engine!r}; allowed: local, ray")
    if address is not None and engine != "ray":
        raise UserError(f"--address is {address!r}, which needs --engine ray")
    mode = ["engine.mode=ray"] if engine == "ray" else []
    return mode + ([f"engine.address={address}"] if address else [])


def compare(
    methods: list[str] | None = None,
    *,
    options: RunOptions = RunOptions(),
    out: Path | None = None,
    seeds: Count | None = None,
    processes: Count | None = None,
    resume: Path | None = None,
) -> None:
    """Run several methods on the same fleet, seeds and failures: one table, one report with all curves.

    With --seeds, each is run with that many seeds, side by side: means with 95 % intervals, and paired tests against
    the first method.

    Args:
        methods: methods, and TOML files: a fleet, or methods composed of parts.
    """
    from covey.cli.study import go_on_with_study, make_study
    from covey.runs.compare import configs_of, run_all
    from covey.runs.study.plan import StudyPlan

    if resume is not None:
        if any((methods, out, seeds, options != RunOptions())):
            raise UserError("--resume uses the folder's own study; it takes no other option")
        go_on_with_study("compare", resume, processes)
        return
    configs = configs_of(compared(methods or [], options), say)
    announce(next(iter(configs.values())))
    if seeds is not None:
        plan = StudyPlan(kind="compare", configs=configs, seeds=seeds)
        make_study(plan, out or new_run_folder("compare"), processes)
        return
    with interruptible():
        done = run_all(configs, out or new_run_folder("compare"), live=live, say=say)
    if done.runs:
        show([done[label] for label in done], done.folder)
    if words := done.failures():
        raise RunError(words)


def compared(methods: list[str], options: RunOptions) -> dict[str, dict[str, Any]]:
    """The tables of every run of a comparison by its name: methods, and files that compose one.

    The first file and the options say what the fleet is; of further files only the method counts.
    """
    from covey.runs.compare import is_composed, with_method
    from covey.settings.toml import read_tables

    files = [Path(name) for name in methods if name.endswith(".toml")]
    fleet = gathered_tables(files[0] if files else None, options)
    composed = {files[0].stem: fleet} if is_composed(fleet) else {}
    for file in files[1:]:
        tables = read_tables(file)
        if not is_composed(tables):
            raise UserError(
                f'{file} has no [method] with name = "compose"; only one file can say what the fleet is'
            )
        others = sorted(set(tables) - {"method", "name"})
        if others:
            raise UserError(f"{file} says {others[0]}, but the fleet is that of {files[0]}; leave it out")
        composed[file.stem] = {**fleet, "method": tables["method"]}
    runs = {}
    for name in sorted(name for name in set(methods) if methods.count(name) > 1):
        say(f"{name} is named {methods.count(name)} times: it is run once")
    for name in dict.fromkeys(methods):
        label = Path(name).stem if name.endswith(".toml") else bare_name(name)
        label = name if label in runs else label  # two of one name from different files
        if not name.endswith(".toml"):
            runs[label] = with_method(fleet, name)
        elif label in composed:
            runs[label] = {"name": label, **composed[label]}
    if not runs:
        raise UserError(
            'compare needs at least one method (see covey methods), or a file with name = "compose"'
        )
    return runs


def gathered_tables(file: Path | None, options: FleetOptions, method: str | None = None) -> dict[str, Any]:
    """The tables of the file, with the options on top."""
    from covey.runs.compare import with_method
    from covey.settings.toml import named_tables, read_tables, with_setting

    tables = named_tables(read_tables(file)) if file else {}
    if method is not None and tables.get("method", {}).get("name") != method:
        tables = with_method(tables, method)
    for assignment in options.settings():
        with_setting(tables, assignment)
    return tables


def announce(config: Config) -> None:
    """What is about to run, on which data."""
    partition = config["partition"]
    settings = ", ".join(f"{k} {v}" for k, v in partition.items() if k != "name" and v is not None)
    cut, model = (bare_name(config[table]["name"]) for table in ("partition", "model"))
    data = data_name(config["data"]["name"], config["data"].get("path"))
    how = f"{cut} ({settings})" if settings else cut
    clients = config["data"]["clients"]
    say(f"{data}, {clients} client{'s' if clients != 1 else ''} by {how}, {model}")


def show(finished: list[Run], folder: Path | None = None) -> None:
    """The table at the end, and where the report is."""
    from covey.folder.read import read_run
    from covey.report.replicas import odd_words
    from covey.report.table import summary_table
    from covey.terminal import Console

    views = [read_run(done.folder) for done in finished]
    Console().print(summary_table(views))
    if len(views) > 1 and (words := odd_words(views)):
        console.print(words)
    place = folder or finished[0].folder
    console.print_words(f"report: {place / 'report.html'}")


class interruptible:  # noqa: N801
    """Turns an interrupted run into its sentence and exit code 130; `again` are options to give once more."""

    def __init__(self, again: str = "") -> None:
        self.again = again

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from covey.runs.run import Interrupted

        if isinstance(error, Interrupted):
            console.print(f"covey: {error} {self.again}".rstrip(), soft_wrap=True)
            raise typer.Exit(130) from None
