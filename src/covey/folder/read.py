"""Open a run folder: a finished one, or the journal of one that is under way or was interrupted."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.errors import UserError
from covey.files import read_json, read_whole
from covey.folder.about import About, read_about
from covey.folder.checksums import Index, Piece, check_files, read_index
from covey.folder.rows import Rows, read_journal, read_parquet
from covey.folder.summary import Summary, Target, parse_summary, progress_of, reach
from covey.settings.toml import check_tables
from covey.training.metrics import Metrics, split_name


@dataclass(frozen=True, kw_only=True, eq=False)
class RunView:
    """Everything that can be read from a run folder."""

    path: Path
    config: str
    summary: Summary
    rows: Rows
    about: About = field(default_factory=About)

    @property
    def metrics(self) -> Metrics:
        """Its metrics with their directions."""
        return self.about.metrics

    @property
    def label(self) -> str:
        """What to call the run: its name, else its method, else its folder."""
        return self.summary.name or self.summary.method or self.path.name

    @property
    def simulated(self) -> bool:
        """Whether its seconds are of simulated devices, and not of the clock beside real sites."""
        return not self.summary.engine.get("names") and self.summary.engine.get("name") != "flower"

    @property
    def client_names(self) -> dict[int, str]:
        """What clients are called, by number: shares that have names, or real sites; empty where they have none."""
        told = self.summary.engine.get("names")
        names = told.items() if isinstance(told, dict) else enumerate(self.about.clients)
        return {int(client): str(name) for client, name in names if name and str(client).isdecimal()}

    def to_target(self, metric: str, target: float) -> Target:
        """What it took to reach `target`: as the run booked it, else worked out from its rows."""
        booked = (t for t in self.summary.targets if t.metric == metric and t.target == target)
        return next(booked, None) or reach(self.rows, metric, target, self.metrics)


def read_run(path: Path) -> RunView:
    """The run in the folder `path`; one clear sentence when it is not one, is damaged or too new.

    Of a run that continues, it is what the last checkpoint holds; what came after it may yet never have happened.
    """
    if not is_folder(path):
        raise UserError(f"{str(path)[:300]} is not a run folder: there is no such folder.")
    finished, journal = path / "metrics.parquet", path / "metrics.jsonl"
    if not finished.is_file() and not journal.is_file():
        raise UserError(f"{path} is not a run folder: it has neither metrics.parquet nor metrics.jsonl.")
    index = read_index(path)
    if index is not None:
        check_files(path, index)
    config, settings = read_config(path / "config.toml")
    about = read_about(path)
    summary = read_summary(path / "summary.json")
    if finished.is_file() and ((summary and summary.finished) or not journal.is_file()):
        if summary is None:
            raise UserError(f"{path} is damaged: metrics.parquet is there, but summary.json is missing.")
        return RunView(path=path, config=config, summary=summary, rows=read_parquet(finished), about=about)
    rows = read_journal(journal, journal_of(index))
    known = summary or summary_from_config(settings, rows)
    now = progress_of(rows, known, about.metrics)
    return RunView(path=path, config=config, summary=now, rows=rows, about=about)


def is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        return False


def journal_of(index: Index | None) -> Piece | None:
    """The part of the journal that the last checkpoint answers for; None where none does."""
    return index.kept[0].journal if index is not None and index.kept else None


def read_config(path: Path) -> tuple[str, Mapping[str, Any]]:
    """The text and the settings of `config.toml`; a run always has one."""
    try:
        text = read_whole(path).decode()
        tables = tomllib.loads(text)
        check_tables(tables)
        return text, tables
    except FileNotFoundError as problem:
        inside = [
            *path.parent.glob(f"*/{path.name}"),
            *path.parent.glob(f"*/*/{path.name}"),
        ]  # a comparison's
        if inside:
            raise UserError(
                f"{path.parent} holds {len(inside)} runs: name one of them, such as {min(inside).parent}"
            ) from problem
        raise UserError(f"{path.parent} is damaged: config.toml is missing.") from problem
    except (ValueError, OSError, RecursionError) as problem:
        raise UserError(f"{path} is damaged: it cannot be read as TOML.") from problem
    except UserError as problem:
        raise UserError(f"{path} is damaged: {problem}") from problem


def read_summary(path: Path) -> Summary | None:
    """`summary.json`, or None when the run has not written one yet."""
    try:
        return parse_summary(read_json(path), str(path))
    except FileNotFoundError:
        return None


def summary_from_config(settings: Mapping[str, Any], rows: Rows) -> Summary:
    """The facts that an unfinished run's configuration gives; a target is about the first metric but loss."""

    def named(key: str) -> str:
        value = settings.get(key, "")
        return str(value.get("name", "")) if isinstance(value, dict) else str(value)

    def whole(key: str) -> int:
        value = settings.get(key, 0)
        return value if isinstance(value, int) else 0

    return Summary(
        name=named("name"),
        method=named("method"),
        dataset=named("data"),
        model=named("model"),
        seed=whole("seed"),
        rounds=whole("rounds"),
        targets=targets_from_config(settings, rows),
    )


def targets_from_config(settings: Mapping[str, Any], rows: Rows) -> tuple[Target, ...]:
    """The target of a configuration as a finished run would name it; whether it was reached comes later."""
    target, on = settings.get("target"), settings.get("target_on")
    wanted = (on, "mean" if on == "local-test" else "")
    said = settings.get("target_metric")
    names = [
        (base, name)
        for name in rows.names
        for split, base, how in [split_name(name)]
        if (split, how) == wanted
    ]
    found = next((name for base, name in names if (base == said if said else base != "loss")), None)
    if found is None or not isinstance(target, int | float):
        return ()
    return (Target(metric=found, target=float(target)),)
