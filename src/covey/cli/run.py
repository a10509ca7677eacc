"""`covey run` and `covey compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli.own_table import ClientOption, DataOption, LabelOption, with_own_table
from covey.errors import RunError, UserError
from covey.files import new_run_folder
from covey.settings.own_code import bare_name, data_name
from covey.terminal import console, live, say

if TYPE_CHECKING:
    from covey.privacy.longer import Budget
    from covey.runs.config import Config
    from covey.runs.results import Run

FileArgument = Annotated[
    Path | None, typer.Argument(help="A TOML file with the run's settings.", show_default=False)
]
MethodOption = Annotated[str | None, typer.Option(help="The method (see covey methods).")]
DatasetOption = Annotated[str | None, typer.Option(help="The data set (see covey datasets).")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Any setting: table.key=value. Repeatable.")
]
OutOption = Annotated[Path | None, typer.Option(help="The folder to write. [default: runs/NAME-TIME]")]
SeedOption = Annotated[int | None, typer.Option(help="The seed that everything random follows from.")]
RoundsOption = Annotated[int | None, typer.Option(help="How many rounds.")]
SeedsOption = Annotated[
    int | None,
    typer.Option(help="With how many seeds everything is run: the seed itself and the next ones.", min=1),
]
ProcessesOption = Annotated[
    int | None, typer.Option(help="The most runs at once. [default: what memory and cores allow]", min=1)
]
ResumeOption = Annotated[
    Path | None, typer.Option(help="Resume the study in this folder.", show_default=False)
]


ChangedCodeOption = Annotated[
    bool, typer.Option("--changed-code", help="With --resume: continue though your own code or data changed.")
]


def register(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(compare)


def run(
    file: FileArgument = None,
    method: MethodOption = None,
    dataset: DatasetOption = None,
    data: DataOption = None,
    label: LabelOption = None,
    client: ClientOption = None,
    set_: SetOption = None,
    out: OutOption = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Resume the run in this folder, with --rounds to so many in all."),
    ] = None,
    seed: SeedOption = None,
    rounds: RoundsOption = None,
    engine: Annotated[
        str | None, typer.Option(help="Where the clients are simulated: local or ray. [default: local]")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="The Ray cluster. [default: RAY_ADDRESS, or one started here]")
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            help="With --resume and more --rounds of a private run: what all rounds may cost, a number, or same-noise "
            "(epsilon is then what that costs), or kept (with far more noise).",
            show_default=False,
        ),
    ] = None,
    changed_code: ChangedCodeOption = False,
    from_: Annotated[
        int | None,
        typer.Option("--from", help="With --resume: go back to the kept checkpoint of this round.", min=0),
    ] = None,
) -> None:
    """Run one method and write a run folder with its report."""
    from covey.runs.run import resume as go_on
    from covey.runs.run import run_config

    if resume is not None:
        if any(
            option is not None for option in (file, method, dataset, data, set_, out, seed, engine, address)
        ):
            raise UserError(
                "--resume uses the folder's own settings; it takes no other option but --rounds, --epsilon and "
                "--from"
            )
        from covey.runs.place import config_in

        total = rounds or config_in(resume).top.rounds
        with live(resume.name, total) as watch, interruptible():
            done = go_on(
                resume,
                rounds=rounds,
                epsilon=budget_of(epsilon),
                watchers=[watch],
                say=say,
                changed_code=changed_code,
                from_round=from_,
            )
        show([done])
        return
    if changed_code:
        raise UserError("--changed-code goes with --resume: a new run begins with the code as it is")
    if epsilon is not None:
        raise UserError("--epsilon goes with --resume and --rounds; a new run has --set private.epsilon=...")
    if from_ is not None:
        raise UserError("--from goes with --resume: a new run begins with round 1")
    own = with_own_table(set_, data, label, client, dataset)
    assignments = [*own, *engine_settings(engine, address)]
    config = configured(
        file, method=method, dataset=dataset, assignments=assignments, seed=seed, rounds=rounds, alone=True
    )
    folder = out or new_run_folder(config.method_name)
    announce(config)
    with live(config.method_name, config.top.rounds) as watch, interruptible():
        done = run_config(config, folder, watchers=[watch], say=say)
    show([done])


def budget_of(epsilon: str | None) -> Budget | None:
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
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            help="Methods, and TOML files: a fleet, or methods composed of parts.", show_default=False
        ),
    ] = None,
    dataset: DatasetOption = None,
    data: DataOption = None,
    label: LabelOption = None,
    client: ClientOption = None,
    set_: SetOption = None,
    out: OutOption = None,
    seed: SeedOption = None,
    rounds: RoundsOption = None,
    seeds: SeedsOption = None,
    processes: ProcessesOption = None,
    resume: ResumeOption = None,
) -> None:
    """Run several methods on the same fleet, seeds and failures: one table, one report with all curves.

    With --seeds, each is run with so many seeds, side by side: means with 95 % intervals, and paired tests against the
    first method.
    """
    from covey.cli.study import go_on_with_study, make_study
    from covey.runs.compare import configs_of, run_all
    from covey.runs.study.plan import Plan

    if resume is not None:
        if any((methods, dataset, data, set_, out, seed, rounds, seeds)):
            raise UserError("--resume uses the folder's own study; it takes no other option")
        go_on_with_study("compare", resume, processes)
        return
    own = with_own_table(set_, data, label, client, dataset)
    configs = configs_of(compared(methods or [], dataset, own, seed, rounds), say)
    if seeds is not None:
        announce(next(iter(configs.values())))
        plan = Plan(kind="compare", configs=configs, seeds=seeds)
        make_study(plan, out or new_run_folder("compare"), processes)
        return
    announce(next(iter(configs.values())))
    with interruptible():
        done = run_all(configs, out or new_run_folder("compare"), live=live, say=say)
    if done.runs:
        show([done[label] for label in done], done.folder)
    if words := done.failures():
        raise RunError(words)


def compared(
    methods: list[str], dataset: str | None, set_: list[str] | None, seed: int | None, rounds: int | None
) -> dict[str, dict[str, Any]]:
    """The tables of every run of a comparison by its name: methods, and files that compose one.

    The first file says what the fleet is, and so do the options; of further ones only their method counts.
    """
    from covey.runs.compare import is_composed, with_method
    from covey.settings.toml import read_tables

    files = [Path(name) for name in methods if name.endswith(".toml")]
    fleet = gathered(files[0] if files else None, None, dataset, set_, seed, rounds)
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


def gathered(
    file: Path | None,
    method: str | None,
    dataset: str | None,
    assignments: list[str] | None,
    seed: int | None,
    rounds: int | None,
) -> dict[str, Any]:
    """The tables of the file, with the options on top."""
    from covey.runs.compare import with_method
    from covey.settings.toml import named_tables, read_tables, with_setting

    tables = named_tables(read_tables(file)) if file else {}
    if dataset is not None:
        tables.setdefault("data", {})["name"] = dataset
    if method is not None:
        other = tables.get("method", {}).get("name") != method
        tables = with_method(tables, method) if other else tables
    if seed is not None:
        tables["seed"] = seed
    if rounds is not None:
        tables["rounds"] = rounds
    for assignment in assignments or ():
        with_setting(tables, assignment)
    return tables


def configured(
    file: Path | None = None,
    *,
    method: str | None = None,
    dataset: str | None = None,
    assignments: list[str] | None = None,
    seed: int | None = None,
    rounds: int | None = None,
    alone: bool = False,
) -> Config:
    """The complete configuration of a command line; of a run that is compared with no other if it is `alone`."""
    from covey.parts.measure import seldom_measured
    from covey.runs.config import resolve

    tables = gathered(file, method, dataset, assignments, seed, rounds)
    return resolve(seldom_measured(tables) if alone else tables)


def announce(config: Config) -> None:
    """What is about to run, on which data."""
    partition = config["partition"]
    settings = ", ".join(f"{k} {v}" for k, v in partition.items() if k != "name" and v is not None)
    cut, model = (bare_name(config[table]["name"]) for table in ("partition", "model"))
    data = data_name(config["data"]["name"], config["data"].get("path"))
    how = f"{cut} ({settings})" if settings else cut
    say(f"{data}, {config['data']['clients']} clients by {how}, {model}")


def show(finished: list[Run], folder: Path | None = None) -> None:
    """The table at the end, and where the report is."""
    from covey.folder.read import read_run
    from covey.report.table import summary_table
    from covey.terminal import Console

    Console().print(summary_table([read_run(done.folder) for done in finished]))
    place = folder or finished[0].folder
    console.print(f"report: {place / 'report.html'}", highlight=False)


class interruptible:  # noqa: N801
    """Turns an interrupted run into its sentence and exit code 130; `again` are options to give once more."""

    def __init__(self, again: str = "") -> None:
        self.again = again

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from covey.runs.run import Interrupted

        if isinstance(error, Interrupted):
            console.print(
                f"covey: {error} {self.again}".rstrip(), highlight=False, markup=False, soft_wrap=True
            )
            raise typer.Exit(130) from None
