"""`covey run` and `covey compare`."""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli.progress import console, live, say
from covey.errors import RunError, UserError
from covey.folders import new_run_folder
from covey.own_code import bare_name

if TYPE_CHECKING:
    from covey.config import Config
    from covey.simulate import Finished

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


def register(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(compare)


def run(
    file: FileArgument = None,
    method: MethodOption = None,
    dataset: DatasetOption = None,
    set_: SetOption = None,
    out: OutOption = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder, with --rounds to so many in all.")
    ] = None,
    seed: SeedOption = None,
    rounds: RoundsOption = None,
    engine: Annotated[
        str | None, typer.Option(help="Where the clients are simulated: local or ray. [default: local]")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="The Ray cluster. [default: RAY_ADDRESS, or one started here]")
    ] = None,
    changed_code: Annotated[
        bool,
        typer.Option("--changed-code", help="With --resume: go on though your own code or data changed."),
    ] = False,
) -> None:
    """Run one method and write a run folder with its report."""
    from covey.simulate import resume as go_on
    from covey.simulate import simulate

    if resume is not None:
        if any(option is not None for option in (file, method, dataset, set_, out, seed, engine)):
            raise UserError(
                "--resume goes on with the folder's own settings; it takes no other option but --rounds"
            )
        from covey.run_folder import config_in

        total = rounds or config_in(resume).top.rounds
        with live(resume.name, total) as watch, interruptible():
            done = go_on(resume, rounds=rounds, watchers=[watch], say=say, changed_code=changed_code)
        show([done])
        return
    if changed_code:
        raise UserError("--changed-code goes with --resume: a new run begins with the code as it is")
    assignments = [*(set_ or ()), *engine_settings(engine, address)]
    config = configured(
        file, method=method, dataset=dataset, assignments=assignments, seed=seed, rounds=rounds
    )
    folder = out or new_run_folder(config.method_name)
    announce(config)
    with live(config.method_name, config.top.rounds) as watch, interruptible():
        done = simulate(config, folder, watchers=[watch], say=say)
    show([done])


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
        list[str],
        typer.Argument(
            help="Methods, and TOML files: a fleet, or methods composed of parts.", show_default=False
        ),
    ],
    dataset: DatasetOption = None,
    set_: SetOption = None,
    out: OutOption = None,
    seed: SeedOption = None,
    rounds: RoundsOption = None,
) -> None:
    """Run several methods on the same fleet, seeds and failures: one table, one report with all curves."""
    from covey.config import resolve
    from covey.report.folder import read_run
    from covey.report.page import write_report
    from covey.simulate import run_or_resume

    runs = on_equal_data(compared(methods, dataset, set_, seed, rounds))
    configs = {name: resolve(tables) for name, tables in runs.items()}
    folder = out or new_run_folder("compare")
    announce(next(iter(configs.values())))
    finished, failed = [], {}
    for name, config in configs.items():
        try:
            with live(name, config.top.rounds) as watch, interruptible():
                finished.append(run_or_resume(config, folder / name, watchers=[watch], say=say, report=False))
        except typer.Exit:
            raise
        except Exception as error:  # the others are worth having, whatever one of them does
            failed[name] = in_one_sentence(error)
            say(f"{name} failed: {failed[name]}")
    if finished:
        write_report([read_run(done.folder) for done in finished], folder / "report.html")
        show(finished, folder)
    if failed:
        words = "; ".join(f"{name}: {sentence}" for name, sentence in failed.items())
        raise RunError(f"{len(failed)} of {len(configs)} methods failed: {words}")


def in_one_sentence(error: Exception) -> str:
    """A mistake as it is said; of a fault in a method's own lines, also where it is."""
    if isinstance(error, UserError | RunError):
        return str(error)
    place = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"


def compared(
    methods: list[str], dataset: str | None, set_: list[str] | None, seed: int | None, rounds: int | None
) -> dict[str, dict[str, Any]]:
    """The tables of every run of a comparison by its name: methods, and files that compose one.

    The first file says what the fleet is, and so do the options; of further ones only their method counts.
    """
    from covey.tables import read_tables

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
    for name in dict.fromkeys(methods):
        label = Path(name).stem if name.endswith(".toml") else bare_name(name)
        if not name.endswith(".toml"):
            runs[label] = with_method(fleet, name)
        elif label in composed:
            runs[label] = {"name": label, **composed[label]}
    if not runs:
        raise UserError(
            'compare needs at least one method (see covey methods), or a file with name = "compose"'
        )
    return runs


def is_composed(tables: dict[str, Any]) -> bool:
    """Whether a file describes a method of its own, which a comparison runs, too."""
    method = tables.get("method", {})
    return isinstance(method, dict) and method.get("name") == "compose"


def on_equal_data(runs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Where a method keeps some data for validation, all keep as much: nobody wins by having more to train on."""
    from covey.config import method_of, resolve

    if any("holdout" in tables.get("train", {}) for tables in runs.values()):
        return runs
    kept = {name: getattr(method_of(resolve(tables)).local, "holdout", 0.0) for name, tables in runs.items()}
    most = max(kept, key=lambda name: kept[name])
    if kept[most] == min(kept.values()):
        return runs
    say(
        f"{most} keeps {kept[most]:.0%} of each client's data for validation, so all methods do "
        "(--set train.holdout=0: the others train on everything, as published)"
    )
    return {
        name: {**tables, "train": {**tables.get("train", {}), "holdout": kept[most]}}
        for name, tables in runs.items()
    }


def with_method(tables: dict[str, Any], name: str) -> dict[str, Any]:
    """The tables for another method: of the settings in [method], those that it has too."""
    from covey.catalogue import METHODS
    from covey.config import GIVEN
    from covey.settings import settings_of

    accepted = settings_of(METHODS.find(name), given=GIVEN)
    said = tables.get("method", {})
    if is_composed(tables):  # its settings are parts; the number of clients a round is everybody's
        select = said.get("select")
        said = (
            {"per_round": select["per_round"]} if isinstance(select, dict) and "per_round" in select else {}
        )
    own = {key: value for key, value in said.items() if key in accepted}
    return {**tables, "method": {"name": name, **own}}


def gathered(
    file: Path | None,
    method: str | None,
    dataset: str | None,
    assignments: list[str] | None,
    seed: int | None,
    rounds: int | None,
) -> dict[str, Any]:
    """The tables of the file, with the options on top."""
    from covey.tables import read_tables, with_setting

    tables: dict[str, Any] = read_tables(file) if file else {}
    if dataset is not None:
        tables.setdefault("data", {})["name"] = dataset
    if method is not None:
        tables = with_method(tables, method) if tables.get("method", {}).get("name") != method else tables
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
) -> Config:
    """The complete configuration of a command line."""
    from covey.config import resolve

    return resolve(gathered(file, method, dataset, assignments, seed, rounds))


def announce(config: Config) -> None:
    """What is about to run, on which data."""
    partition = config["partition"]
    settings = ", ".join(f"{k} {v}" for k, v in partition.items() if k != "name" and v is not None)
    data, cut, model = (bare_name(config[table]["name"]) for table in ("data", "partition", "model"))
    say(f"{data}, {config['data']['clients']} clients by {cut} ({settings}), {model}")


def show(finished: list[Finished], folder: Path | None = None) -> None:
    """The table at the end, and where the report is."""
    from covey.cli.terminal import Console
    from covey.report.folder import read_run
    from covey.report.table import summary_table

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
        from covey.simulate import Interrupted

        if isinstance(error, Interrupted):
            console.print(
                f"covey: {error} {self.again}".rstrip(), highlight=False, markup=False, soft_wrap=True
            )
            raise typer.Exit(130) from None
