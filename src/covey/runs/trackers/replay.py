"""A finished run logged to a tracker afterwards, from its folder."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from covey.errors import UserError
from covey.folder.read import read_run
from covey.folder.rows import Rows
from covey.runs.config import config_in
from covey.runs.tracking import tracked
from covey.settings.catalogue import TRACKERS
from covey.settings.own_code import one_sentence


def told_after(folder: Path, name: str, settings: Mapping[str, Any]) -> None:
    """Logs everything that the tracker would have been told during the run."""
    view = read_run(folder)
    with one_sentence(f"tracker {name!r}"):
        tracker = TRACKERS.find(name)(**settings)
        tracker.begin(tracked(config_in(folder), folder))
        for number, values in rounds_of(view.rows):
            tracker.log(number, values)
        summary = folder / "summary.json"
        tracker.end(
            json.loads(summary.read_text(encoding="utf-8")) if summary.exists() else {"finished": False}
        )


def rounds_of(rows: Rows) -> Iterator[tuple[int, dict[str, float]]]:
    """The overall numbers of every round, and what it had cost by then."""
    overall = rows.take((rows.client == -1) & (rows.group == -1) & (rows.round > 0))
    overall = overall.take(np.argsort(overall.round, kind="stable"))
    starts = np.flatnonzero(np.diff(overall.round, prepend=-1))
    for first, last in zip(starts, [*starts[1:], len(overall)], strict=True):
        here = overall.take(np.arange(first, last))
        values = {here.names[name]: float(value) for name, value in zip(here.name, here.value, strict=True)}
        values |= {"cost/seconds": float(here.seconds[-1]), "cost/bytes": float(here.bytes[-1])}
        yield int(here.round[0]), values


def run_folders(place: Path) -> list[Path]:
    """The run folders in a folder, itself or anywhere beneath."""
    found = sorted(path.parent for path in place.rglob("config.toml") if is_run(path.parent))
    if not found:
        raise UserError(f"{place} holds no run folder")
    return found


def is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("metrics.parquet", "metrics.jsonl"))
