"""The runs as one table for the page: settings that all share are said once, only those that differ per run."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from covey.report.live.folder import WatchedRun
from covey.report.wording import is_share, metric_title
from covey.training.metrics import higher_is_better

MOST_SETTINGS = 40


def live_table(runs: Iterable[WatchedRun]) -> dict[str, Any]:
    """All runs; `settings` and `metrics` are the columns that every row's lists follow."""
    runs = list(runs)
    settings, metrics = varying(runs), measured(runs)
    about = {
        name: {"title": metric_title(name), "share": is_share(name), "higher": higher_is_better(name)}
        for name in metrics
    }
    rows = [row_of(run, settings, metrics) for run in runs]
    return {"settings": settings, "metrics": metrics, "about": about, "runs": rows}


def row_of(run: WatchedRun, settings: list[str], metrics: list[str]) -> dict[str, Any]:
    """One row; a number that is not finite is null."""
    return run.row() | {
        "s": [run.settings.get(name) for name in settings],
        "m": [short(run.metrics.get(name)) for name in metrics],
    }


def short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def varying(runs: list[WatchedRun]) -> list[str]:
    """The settings in which the runs differ, those of the training and the method first."""
    runs = [
        run for run in runs if run.settings
    ]  # one whose file cannot be read differs in nothing that is known
    values: dict[str, set[Any]] = {}
    for run in runs:
        for name, value in run.settings.items():
            values.setdefault(name, set()).add(value)
    known = {
        name
        for name, found in values.items()
        if len(found) > 1 or sum(name in r.settings for r in runs) < len(runs)
    }
    known -= {"name", "method.name", "data.name", "seed", "rounds", "data.clients"}
    order: Mapping[str, int] = {"train": 0, "method": 1, "partition": 2, "data": 3, "shift": 4, "devices": 5}
    return sorted(known, key=lambda name: (order.get(name.partition(".")[0], 9), name))[:MOST_SETTINGS]


def measured(runs: list[WatchedRun]) -> list[str]:
    """All metrics of any run: accuracies first, losses and spreads last."""
    names = {name for run in runs for name in run.metrics}
    return sorted(
        names, key=lambda name: ("loss" in name, name.endswith("-std"), "local-test" not in name, name)
    )
