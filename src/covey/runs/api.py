"""The two calls for a Python program or a notebook: `covey.simulate` and `covey.compare`, with names or objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, overload

from covey.core.round import Method, Watcher
from covey.data.types import Dataset, Federation
from covey.errors import UserError
from covey.files import new_run_folder
from covey.fleet.fit import check_objective
from covey.parts.measure import seldom_measured
from covey.runs.compare import configs_of, labels_for, run_all
from covey.runs.config import Config, resolve
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
from covey.runs.results import Comparison, Run, Study
from covey.runs.run import run_or_resume
from covey.runs.study.execute import execute
from covey.runs.study.plan import Plan
from covey.settings.toml import on_top
from covey.terminal import live, live_many, many_unseen, say, unseen
from covey.training.metrics import Metric
from covey.training.objective import Objective, objective_named

AnyMethod = str | Method | Mapping[str, Any]


def simulate(
    method: AnyMethod = "fedavg",
    data: AnyData = "digits",
    model: AnyModel = "usual",
    *,
    rounds: int = 50,
    clients: int | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    objective: str | Objective = "classification",
    metrics: Sequence[str | Metric] = (),
    label: str | None = None,
    client: str | None = None,
    progress: bool = True,
    report: bool = True,
    watchers: Sequence[Watcher] = (),
    **tables: Any,
) -> Run:
    """Runs a method on data with a model, and gives the result: print it, look at it in a notebook, take its models.

    Each of `method`, `data`, `model`, `objective` and `metrics` is a name (built in, `package.module:name`,
    `path/to/file.py:name`) or an object: a `Method`, a `Dataset` or `Federation`, a `torch.nn.Module`, an
    `Objective`, a `Metric`. For method, data and model it may be a table with a name and settings, too: `{"name":
    "mlp", "hidden": [32]}`. `tables` are the other settings as in a TOML file: `train={"lr": 0.1}`,
    `partition={"name": "iid"}`, `target=0.9`. Data may also be what a program has: a data frame or a Hugging Face
    Dataset (`label` is the column to predict, `client` the one that says whose row it is), a torch Dataset, a pair of
    arrays, or a list or dict of these, one per client (`covey.from_clients`). `clients` is among how many clients the
    data are shared out. `out` is the run folder (`runs/NAME-TIME` if none is given); called again with the same, it
    goes on where the run stopped, to the same bits, and with more `rounds` to that many.
    """
    data = given_data(data, label, client)
    whole = all_tables(data, model, rounds, clients, seed, objective, metrics, tables)
    if not all(map(callable, watchers)):
        raise UserError(f"watchers is {watchers!r}; allowed: a list of functions of a RoundEnd")
    config = resolve(seldom_measured(on_top(whole, method_tables(_plain(method)))))
    folder = folder_of(out) or new_run_folder(config.method_name)
    show, tell = shown(progress)
    with show(config.method_name, config.top.rounds) as watch:
        done = run_or_resume(
            config, folder, watchers=[watch, *watchers], say=tell, report=report, longer=True
        )
    return Run(config.top.name or config.method_name, folder, done.state, done.summary)


@overload
def compare(
    methods: Mapping[str, AnyMethod] | Sequence[str | Method],
    data: AnyData = "digits",
    model: AnyModel = "usual",
    *,
    rounds: int = 50,
    clients: int | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    seeds: None = None,
    processes: int | None = None,
    objective: str | Objective = "classification",
    metrics: Sequence[str | Metric] = (),
    label: str | None = None,
    client: str | None = None,
    progress: bool = True,
    **tables: Any,
) -> Comparison: ...


@overload
def compare(
    methods: Mapping[str, AnyMethod] | Sequence[str | Method],
    data: AnyData = "digits",
    model: AnyModel = "usual",
    *,
    rounds: int = 50,
    clients: int | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    seeds: int,
    processes: int | None = None,
    objective: str | Objective = "classification",
    metrics: Sequence[str | Metric] = (),
    label: str | None = None,
    client: str | None = None,
    progress: bool = True,
    **tables: Any,
) -> Study: ...


def compare(
    methods: Mapping[str, AnyMethod] | Sequence[str | Method],
    data: AnyData = "digits",
    model: AnyModel = "usual",
    *,
    rounds: int = 50,
    clients: int | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    seeds: int | None = None,
    processes: int | None = None,
    objective: str | Objective = "classification",
    metrics: Sequence[str | Metric] = (),
    label: str | None = None,
    client: str | None = None,
    progress: bool = True,
    **tables: Any,
) -> Comparison | Study:
    """Runs several methods on the same fleet, seeds and failures, and gives one table and one report of all.

    `methods` are names or objects, or label -> one of these or a table such as `{"name": "fedavg", "per_round": 5}`.
    A method that fails leaves the others' results. All else is as in `simulate`; called again with the same `out`, it
    goes on. With `seeds`, each method is run with so many seeds, `seed` and the next ones, and the result is a `Study`:
    means with 95 % intervals, and paired tests against the first method. Its runs go side by side, in `processes`
    processes at most; where objects are given, which only this program has, one after another.
    """
    if isinstance(methods, str):
        raise UserError(
            f"methods is {methods!r}; allowed: a list, such as [{methods!r}], or {{label: method}}"
        )
    named = methods if isinstance(methods, Mapping) else by_label(methods)
    if not named:
        raise UserError("compare needs at least one method")
    data = given_data(data, label, client)
    whole = all_tables(data, model, rounds, clients, seed, objective, metrics, tables)
    runs = {
        label: {**on_top(whole, method_tables(_plain(method))), "name": label}
        for label, method in named.items()
    }
    for name, number in (("seeds", seeds), ("processes", processes)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise UserError(f"{name} is {number!r}; allowed: a whole number from 1 on")
    show, tell = shown(progress)
    configs = configs_of(runs, tell)
    folder = folder_of(out) or new_run_folder("compare")
    if seeds is not None:
        return study_of(configs, folder, seeds, processes, progress)
    done = run_all(configs, folder, live=show, say=tell)
    results = {
        label: Run(label, finished.folder, finished.state, finished.summary)
        for label, finished in done.finished.items()
    }
    return Comparison(results, folder, done.failed)


def study_of(
    configs: Mapping[str, Config], folder: Path, seeds: int, processes: int | None, progress: bool
) -> Study:
    """Every configuration with several seeds, or what is left of that in the folder."""
    plan = Plan(kind="compare", configs=configs, seeds=seeds)
    show, tell = (live_many, say) if progress else (many_unseen, lambda _: None)
    done = execute(plan, folder, show=show, say=tell, processes=processes)
    return Study(
        {label: done.finished[label] for label in configs if label in done.finished}, folder, done.failed
    )


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


def all_tables(
    data: str | Mapping[str, Any] | Dataset | Federation,
    model: AnyModel,
    rounds: int,
    clients: int | None,
    seed: int,
    objective: str | Objective,
    metrics: Sequence[str | Metric],
    tables: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything but the method as the tables of a configuration."""
    plain: dict[str, Any] = {"rounds": rounds, "seed": seed, "objective": objective_name(objective)}
    if isinstance(data, Dataset | Federation):
        dataset = data if isinstance(data, Dataset) else data.dataset
        check_objective(dataset, objective_named(plain["objective"]))
    shared = {"data": {"clients": clients}} if clients is not None else {}
    measured = {"measure": {"metrics": metric_names(metrics)}} if metrics else {}
    return on_top(plain, shared, data_tables(data), model_tables(model), measured, tables)


def _plain(method: AnyMethod) -> str | Method | dict[str, Any]:
    return dict(method) if isinstance(method, Mapping) else method


Shown = Callable[[str, int], Any]


def shown(progress: bool) -> tuple[Shown, Callable[[str], None]]:
    """How a run is watched: with a bar and lines, or in silence."""
    return (live, say) if progress else (unseen, lambda _: None)
