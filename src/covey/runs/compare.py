"""Several methods on the same fleet, seeds and failures."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from traceback import extract_tb
from typing import Any

from covey.core.round import Watcher
from covey.errors import RunError, UserError
from covey.files import folder_lock
from covey.folder.place import make, taken
from covey.report.page import write_report
from covey.runs.config import Config, resolve
from covey.runs.results import Run, Study
from covey.runs.run import Interrupted, run_or_resume
from covey.runs.sections import settings_in
from covey.settings.catalogue import METHODS
from covey.settings.own_code import bare_name

RunTables = Mapping[str, Any]


def run_all(
    configs: Mapping[str, Config],
    folder: Path,
    *,
    live: Callable[[str, int], AbstractContextManager[Watcher]],
    say: Callable[[str], None],
) -> Study:
    """Runs each configuration into its own folder, or continues with it, and writes one report of all."""
    finished: dict[str, dict[int, Run]] = {}
    failed: dict[str, str] = {}
    once = _once(say)  # what is said of the data holds for all of them
    make(folder)
    with folder_lock(folder, taken(folder)):
        for label, config in configs.items():
            try:
                with live(label, config.top.rounds) as watch:
                    done = run_or_resume(
                        config, folder / in_file_names(label), watchers=[watch], say=once, report=False
                    )
                    finished[label] = {config.top.seed: Run(done.folder, label=label, state=done.state)}
            except Interrupted:
                raise
            except Exception as error:  # the other runs are worth having even if one fails
                failed[label] = in_one_sentence(error)
                say(f"{label} failed: {failed[label]}")
        study = Study(finished, folder, failed)
        if finished:
            write_report(study.views, folder / "report.html")
        elif not any(folder.iterdir()):
            folder.rmdir()  # mistakes that were found before anything ran leave nothing behind
    return study


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    """Says each sentence only the first time."""
    said: set[str] = set()

    def saying(sentence: str) -> None:
        if sentence not in said:
            said.add(sentence)
            say(sentence)

    return saying


def configs_of(runs: Mapping[str, RunTables], say: Callable[[str], None]) -> dict[str, Config]:
    """One configuration per label, all on equal data."""
    return {label: resolve(tables) for label, tables in on_equal_data(runs, say).items()}


def on_equal_data(
    runs: Mapping[str, RunTables], say: Callable[[str], None] = lambda _: None
) -> dict[str, RunTables]:
    """Where a method keeps some data for validation, all keep as much: none wins by having more to train on."""
    if any("holdout" in tables.get("train", {}) for tables in runs.values()):
        return dict(runs)
    kept = {name: getattr(resolve(tables).method.local, "holdout", 0.0) for name, tables in runs.items()}
    most = max(kept, key=lambda name: kept[name])
    if kept[most] == min(kept.values()):
        return dict(runs)
    say(
        f"{most} keeps {kept[most]:.0%} of each client's data for validation, so all methods do "
        "(train.holdout=0: the others train on everything, as published)"
    )
    return {
        name: {**tables, "train": {**tables.get("train", {}), "holdout": kept[most]}}
        for name, tables in runs.items()
    }


def is_composed(tables: RunTables) -> bool:
    """Whether a file describes a method of its own, which a comparison runs, too."""
    method = tables.get("method", {})
    return isinstance(method, dict) and method.get("name") == "compose"


def with_method(tables: RunTables, name: str) -> dict[str, Any]:
    """The tables for another method: of the settings in [method], those that it has too."""
    accepted = settings_in("method", METHODS.find(name))
    said = tables.get("method", {})
    if is_composed(tables):  # its settings are parts; the number of clients per round is everybody's
        select = said.get("select")
        said = (
            {"per_round": select["per_round"]} if isinstance(select, dict) and "per_round" in select else {}
        )
    own = {key: value for key, value in said.items() if key in accepted}
    return {**tables, "method": {"name": name, **own}}


def labels_for(names: list[str]) -> list[str]:
    """What the methods are called in tables and folders: bare names, with their place where two are the same."""
    bare = [bare_name(name) for name in names]
    return [label if bare.count(label) == 1 else name for label, name in zip(bare, names, strict=True)]


def in_file_names(label: str) -> str:
    """A label as the name of a folder."""
    return re.sub(r"[^\w.+-]+", "-", label).strip("-.") or "run"


def in_one_sentence(error: Exception) -> str:
    """An error in one sentence; for a fault in a method's own code, with its place."""
    if isinstance(error, UserError | RunError):
        return str(error)
    place = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
