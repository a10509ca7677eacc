"""The calls of a Python program or a notebook: `covey.run`, `covey.resume`, `covey.compare` and `covey.advise`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from covey.core.round import Method, Watcher
from covey.data.types import Dataset, Federation
from covey.errors import UserError
from covey.files import new_run_folder
from covey.fleet.devices import Devices
from covey.fleet.engine import Engine
from covey.fleet.fit import check_objective
from covey.fleet.guard import Guard
from covey.parts.measure import Measuring, seldom_measured
from covey.parts.steps import Train
from covey.parts.steps.compress import Compression
from covey.privacy.longer import LongerBudget
from covey.privacy.settings import Private
from covey.runs.advise import Advice, advise_fleet
from covey.runs.compare import configs_of, labels_for, run_all, with_method
from covey.runs.config import Config, config_in, fleet_of, resolve
from covey.runs.objects import (
    AnyData,
    AnyModel,
    data_tables,
    given_data,
    method_tables,
    metric_names,
    model_tables,
    objective_name,
)
from covey.runs.results import Run, Study
from covey.runs.run import resume as resume_run
from covey.runs.run import run_or_resume
from covey.runs.stopping import Stopping
from covey.runs.study.execute import execute
from covey.runs.study.plan import StudyPlan
from covey.settings.toml import named_tables, on_top, read_tables
from covey.terminal import live, live_many, many_unseen, say, unseen
from covey.training.metrics import Metric
from covey.training.objective import Objective, objective_named

AnyMethod = str | Method | Mapping[str, Any]
Named = str | Mapping[str, Any]
AnyConfig = str | PathLike[str] | Mapping[str, Any] | Config


class Tables(TypedDict, total=False):
    """All other settings, as a TOML file has them: a table is a dict, the object that it describes, or a name."""

    name: str
    target: float
    target_metric: str
    target_on: Literal["global-test", "local-test"]
    stop_at_target: bool
    checkpoint_seconds: float
    checkpoints: int
    patience: int
    tracker: Sequence[Named]
    partition: Named
    shift: Named
    robust: Named
    compress: Named | Compression
    train: Mapping[str, Any] | Train
    devices: Mapping[str, Any] | Devices
    engine: Mapping[str, Any] | Engine
    guard: Mapping[str, Any] | Guard
    measure: Mapping[str, Any] | Measuring
    stop: Mapping[str, Any] | Stopping
    private: Mapping[str, Any] | Private


def run(
    method: AnyMethod | None = None,
    data: AnyData = None,
    model: AnyModel | None = None,
    *,
    config: AnyConfig | None = None,
    rounds: int | None = None,
    clients: int | None = None,
    out: str | Path | None = None,
    seed: int | None = None,
    objective: str | Objective | None = None,
    metrics: Sequence[str | Metric] = (),
    label: str | None = None,
    client: str | None = None,
    progress: bool = True,
    report: bool = True,
    watchers: Sequence[Watcher] = (),
    **tables: Unpack[Tables],
) -> Run:
    """Runs a method on data with a model, as the command `covey run` does, and writes a run folder.

    Called again with the same `out`, it resumes where the run stopped, bit-identically, and with more `rounds` it
    continues to that many. Names are those of `covey methods`, `covey datasets` and `covey models`, or
    `package.module:name`, or `path/to/file.py:name`.

    Args:
        method: a name, a table with a name and settings, or a `Method`. None: the configuration's, else fedavg.
        data: a name or a table with a name; a `Dataset` or `Federation`; or what a program has: a data frame, a torch
            or Hugging Face Dataset, a pair of arrays, a list or dict of these, one per client (`covey.from_clients`).
            None: the configuration's, else digits.
        model: a name, a table with a name, or a `torch.nn.Module`. None: the configuration's, else the usual one.
        config: a TOML file, its tables, or a `Config`; every other argument counts more.
        rounds: how many in all. None: the configuration's, else 50.
        clients: among how many clients the data are partitioned.
        out: the run folder. None: runs/NAME-TIME.
        seed: of everything random. None: the configuration's, else 0.
        objective: classification, regression, reconstruction, or an `Objective`. None: what the data are for.
        metrics: names or `Metric` objects, measured beside those of the objective.
        label: of data with columns, the one to predict.
        client: of data with columns, the one that says whose row it is.
        progress: whether a bar and notes are shown.
        report: whether report.html is written.
        watchers: functions of a `RoundEnd`, called after every round.
        tables: the other settings as in a TOML file, such as `train={"lr": 0.1}`, `partition="iid"`, `target=0.9`.

    Returns:
        The run: print it for its table, `run.models()` are its models.

    Raises:
        UserError: for a setting or data that cannot be used, in one sentence.
        Interrupted: after Ctrl-C; the run is saved, and the same call resumes it.

    Examples:
        >>> run = covey.run("cfic", "digits", rounds=2, partition="iid", out="runs/first", progress=False)
        >>> run.state.round
        2
    """
    whole = all_tables(config, data, model, rounds, clients, seed, objective, metrics, label, client, tables)
    if not all(map(callable, watchers)):
        raise UserError(f"watchers is {watchers!r}; allowed: a list of functions of a RoundEnd")
    found = resolve(seldom_measured(with_given_method(whole, method)))
    check_data(data, found)
    folder = folder_of(out) or new_run_folder(found.method_name)
    show, tell = shown(progress)
    with show(found.method_name, found.top.rounds) as watch:
        return run_or_resume(found, folder, watchers=[watch, *watchers], say=tell, report=report, longer=True)


def resume(
    folder: str | Path,
    *,
    rounds: int | None = None,
    epsilon: LongerBudget | None = None,
    changed_code: bool = False,
    progress: bool = True,
    report: bool = True,
    watchers: Sequence[Watcher] = (),
) -> Run:
    """Resumes the run in a folder, as `covey run --resume` does; the result is bit-identical to an uninterrupted run.

    Args:
        folder: the run folder.
        rounds: how many in all. None: as planned.
        epsilon: of a private run with more rounds, what all of them may cost: a number, "same-noise" or "kept".
        changed_code: whether to continue even if your own code or data file has changed since the run began.
        progress: whether a bar and notes are shown.
        report: whether report.html is written.
        watchers: functions of a `RoundEnd`, called after every round.

    Returns:
        The run.

    Raises:
        UserError: where the folder holds no run, is damaged, or its code has changed.
        Interrupted: after Ctrl-C; the run is saved.

    Examples:
        >>> run = covey.run("fedavg", rounds=1, out="runs/longer", progress=False)
        >>> covey.resume("runs/longer", rounds=2, progress=False).state.round
        2
    """
    place = folder_of(folder) or Path()
    show, tell = shown(progress)
    with show(place.name, rounds or config_in(place).top.rounds) as watch:
        return resume_run(
            place,
            rounds=rounds,
            epsilon=epsilon,
            watchers=[watch, *watchers],
            say=tell,
            report=report,
            changed_code=changed_code,
        )


def compare(
    methods: Mapping[str, AnyMethod] | Sequence[str | Method],
    data: AnyData = None,
    model: AnyModel | None = None,
    *,
    config: AnyConfig | None = None,
    rounds: int | None = None,
    clients: int | None = None,
    out: str | Path | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    processes: int | None = None,
    objective: str | Objective | None = None,
    metrics: Sequence[str | Metric] = (),
    label: str | None = None,
    client: str | None = None,
    progress: bool = True,
    **tables: Unpack[Tables],
) -> Study:
    """Runs several methods on the same clients, seeds and failures, with one table and one report of all.

    A method that fails leaves the others' results. Called again with the same `out`, it resumes.

    Args:
        methods: names or objects, or label -> one of these or a table such as `{"name": "fedavg", "per_round": 5}`.
        seeds: how many seeds each method is run with: `seed` and the next ones. None: one.
        processes: the most runs at once; where objects are given, which only this program has, one.
        data: and all others: as in `run`.

    Returns:
        The study; with several seeds its table has means with 95 % intervals and paired tests against the first.

    Raises:
        UserError: for a setting or data that cannot be used, in one sentence.
        Interrupted: after Ctrl-C; all runs are saved, and the same call resumes them.

    Examples:
        >>> study = covey.compare(["fedavg", "local"], rounds=1, clients=4, out="runs/two", progress=False)
        >>> list(study)
        ['fedavg', 'local']
    """
    if isinstance(methods, str):
        raise UserError(
            f"methods is {methods!r}; allowed: a list, such as [{methods!r}], or {{label: method}}"
        )
    named = methods if isinstance(methods, Mapping) else by_label(methods)
    if not named:
        raise UserError("compare needs at least one method")
    whole = all_tables(config, data, model, rounds, clients, seed, objective, metrics, label, client, tables)
    runs = {key: {**with_given_method(whole, method), "name": key} for key, method in named.items()}
    for name, number in (("seeds", seeds), ("processes", processes)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise UserError(f"{name} is {number!r}; allowed: a whole number from 1 on")
    show, tell = shown(progress)
    configs = configs_of(runs, tell)
    check_data(data, next(iter(configs.values())))
    folder = folder_of(out) or new_run_folder("compare")
    if seeds is None:
        return run_all(configs, folder, live=show, say=tell)
    plan = StudyPlan(kind="compare", configs=configs, seeds=seeds)
    many = live_many if progress else many_unseen
    return execute(plan, folder, show=many, say=tell, processes=processes)


def advise(
    data: AnyData = None,
    *,
    config: AnyConfig | None = None,
    clients: int | None = None,
    seed: int | None = None,
    label: str | None = None,
    client: str | None = None,
    epsilon: float | None = None,
    **tables: Unpack[Tables],
) -> Advice:
    """Says how heterogeneous the clients are and which method to use, as the command `covey advise` does.

    Args:
        data: as for `covey.run`; its labels have to be classes.
        config: a TOML file, its tables, or a `Config`; every other argument counts more.
        clients: among how many clients the data are partitioned.
        seed: of the partition. None: the configuration's, else 0.
        label: of data with columns, the one to predict.
        client: of data with columns, the one that says whose row it is.
        epsilon: privacy loss of what each client tells. None: exact.
        tables: the other settings as in a TOML file, such as `partition="iid"`.

    Returns:
        The advice: print it for its sentences; `advice.method` is the method to use, or the first of two to try.

    Raises:
        UserError: for a setting or data that cannot be used, in one sentence.

    Examples:
        >>> advice = covey.advise("digits", clients=12, partition={"name": "dir-class", "alpha": 0.3})
        >>> advice.heterogeneity.label_skew.low > 0.1
        True
    """
    if epsilon is not None and not epsilon > 0:
        raise UserError(f"epsilon is {epsilon}; allowed: a number above 0")
    found = resolve(all_tables(config, data, None, None, clients, seed, None, (), label, client, tables))
    check_data(data, found)
    fleet = fleet_of(found)
    try:
        return advise_fleet(fleet, epsilon=epsilon)
    finally:
        fleet.close()


# ---------------------------------------------------------------------------------------------- what was given


def all_tables(
    config: AnyConfig | None,
    data: AnyData,
    model: AnyModel | None,
    rounds: int | None,
    clients: int | None,
    seed: int | None,
    objective: str | Objective | None,
    metrics: Sequence[str | Metric],
    label: str | None,
    client: str | None,
    tables: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything but the method as the tables of a configuration; what was not given is left to it."""
    given = {
        "rounds": rounds,
        "seed": seed,
        "objective": None if objective is None else objective_name(objective),
        "data": None if clients is None else {"clients": clients},
        "measure": {"metrics": metric_names(metrics)} if metrics else None,
    }
    found = given_data(data, label, client) if data is not None else None
    return on_top(
        config_tables(config),
        {key: value for key, value in given.items() if value is not None},
        data_tables(found) if found is not None else {},
        model_tables(model) if model is not None else {},
        named_tables({key: _as_table(value) for key, value in tables.items()}),
    )


def config_tables(config: AnyConfig | None) -> dict[str, Any]:
    """The tables of a configuration that is a file, tables, or complete already."""
    if config is None:
        return {}
    if isinstance(config, Config):
        return dict(config.tables)
    if isinstance(config, Mapping):
        return named_tables(config)
    if isinstance(config, str | PathLike):
        return read_tables(Path(config))
    raise UserError(f"config is a {type(config).__name__}; allowed: a TOML file's path, its tables, a Config")


def _as_table(value: Any) -> Any:
    """An object that a table describes, such as `Train(lr=0.1)`, as that table."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def check_data(data: AnyData, config: Config) -> None:
    """Says at once where data that a program gives do not fit what is to be learned."""
    if isinstance(data, Dataset | Federation):
        dataset = data if isinstance(data, Dataset) else data.dataset
        check_objective(dataset, objective_named(config.top.objective))


def with_given_method(tables: dict[str, Any], method: AnyMethod | None) -> dict[str, Any]:
    """The tables for a method; of the settings of another one in [method] those that it has too."""
    if method is None:
        return tables
    given = method_tables(dict(method) if isinstance(method, Mapping) else method)
    name = given["method"].get("name")
    if "method" in tables and name not in (None, tables["method"].get("name")):
        tables = with_method(tables, name)
    return on_top(tables, given)


def folder_of(out: str | Path | None) -> Path | None:
    """The folder that was asked for."""
    if out is not None and not isinstance(out, str | PathLike):
        raise UserError(f"out is {out!r}; allowed: a folder's path")
    return None if out is None else Path(out)


def by_label(methods: Sequence[str | Method]) -> dict[str, AnyMethod]:
    """What the methods are called: their names, none twice."""
    names = labels_for([m if isinstance(m, str) else m.name for m in methods])
    if len(set(names)) < len(names):
        raise UserError(
            f"two methods are called {max(names, key=names.count)!r}; give labels: {{label: method}}"
        )
    return dict(zip(names, methods, strict=True))


Shown = Callable[[str, int], Any]


def shown(progress: bool) -> tuple[Shown, Callable[[str], None]]:
    """How a run is watched: with a bar and lines, or in silence."""
    return (live, say) if progress else (unseen, lambda _: None)
