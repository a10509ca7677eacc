"""From a configuration to a finished run folder, with resume."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.checkpoint import Checkpoint, load_checkpoint
from covey.config import Config, fleet_of, method_of, read_tables, resolve
from covey.core import Fleet, Method, State, Watcher, run
from covey.errors import UserError
from covey.folder_lock import folder_lock
from covey.learning import LearningWatch
from covey.measure import Measuring
from covey.record import Recorder, same_run


@dataclass(frozen=True, kw_only=True, eq=False)
class Finished:
    """What a run leaves: the last state, the summary, and where the folder is."""

    state: State
    summary: dict[str, Any]
    folder: Path


class Interrupted(Exception):  # noqa: N818
    """Ctrl-C: the run is saved in `folder` and can be resumed."""

    def __init__(self, folder: Path, rounds_done: int, command: str = "run") -> None:
        super().__init__(
            f"interrupted after round {rounds_done}; go on with: covey {command} --resume {folder}"
        )
        self.folder = folder


def simulate(
    config: Config,
    folder: Path,
    *,
    watchers: Sequence[Watcher] = (),
    say: Callable[[str], None] | None = None,
    report: bool = True,
    fleet: Fleet | None = None,
) -> Finished:
    """Runs the configuration into a new or empty folder, on its own fleet unless another one is given."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder} is a file; name a new folder")
    if folder.exists() and any(path.name != "superlink" for path in folder.iterdir()):
        raise UserError(f"--out {folder} is not empty; name a new folder, or go on with --resume {folder}")
    return _go(config, folder, None, watchers, say, report, fleet)


def resume(
    folder: Path,
    *,
    watchers: Sequence[Watcher] = (),
    say: Callable[[str], None] | None = None,
    report: bool = True,
    fleet: Fleet | None = None,
) -> Finished:
    """Goes on where the folder's last checkpoint is, to the same bits as a run that was never stopped."""
    config, checkpoint = config_in(folder), load_checkpoint(folder)
    if checkpoint is not None:
        same_run(checkpoint.extra, config)
    return _go(config, folder, checkpoint, watchers, say, report, fleet)


def config_in(folder: Path) -> Config:
    """The configuration of a run folder."""
    if not (folder / "config.toml").exists():
        raise UserError(f"--resume {folder} is not a run folder: it has no config.toml")
    return resolve(read_tables(folder / "config.toml"))


def run_or_resume(
    config: Config,
    folder: Path,
    *,
    watchers: Sequence[Watcher] = (),
    say: Callable[[str], None] | None = None,
    report: bool = True,
) -> Finished:
    """Runs into the folder, or goes on with what lies there if it is the same configuration."""
    there = folder / "config.toml"
    if not there.exists():
        return simulate(config, folder, watchers=watchers, say=say, report=report)
    if there.read_text() != config.toml():
        raise UserError(f"{folder} holds a run with other settings; name another --out folder")
    return resume(folder, watchers=watchers, say=say, report=report)


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a run that has come to its end."""
    try:
        return bool(json.loads((folder / "summary.json").read_text())["finished"])
    except (OSError, ValueError, KeyError):
        return False


def _go(
    config: Config,
    folder: Path,
    checkpoint: Checkpoint | None,
    watchers: Sequence[Watcher],
    say: Callable[[str], None] | None,
    report: bool,
    fleet: Fleet | None = None,
) -> Finished:
    method = method_of(config)
    fleet = fleet or fleet_of(config, say)
    try:
        _make(folder)  # only now: a mistake found on the way here leaves nothing behind
        with folder_lock(
            folder, f"{folder} is being written by another run; wait for it, or name another folder"
        ):
            if checkpoint is not None and is_finished(folder):
                summary = json.loads((folder / "summary.json").read_text())
                state = checkpoint.state
            else:
                if say is not None:
                    say(f"{fleet.layout.trainable:,} parameters; {needs(fleet, config)}")
                if checkpoint is not None:
                    _load(fleet, checkpoint, folder)
                recorder = Recorder(folder, config, fleet, resumed=checkpoint)
                if say is not None:
                    watchers = [*watchers, LearningWatch(config=config, say=say)]
                state = _run(
                    config, method, fleet, recorder, checkpoint.state if checkpoint else None, watchers
                )
                summary = recorder.finish(state, finished=True)
            if report and not (folder / "report.html").exists():
                write_page(folder)
    finally:
        fleet.close()
    return Finished(state=state, summary=summary, folder=folder)


def _load(fleet: Fleet, checkpoint: Checkpoint, folder: Path) -> None:
    try:
        fleet.load(checkpoint.fleet)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{folder / 'checkpoint.json'} is damaged and cannot be resumed: {error!r}"
        ) from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {folder} cannot be made: {error.strerror or error}") from error


def needs(fleet: Fleet, config: Config) -> str:
    """The bound on memory in words."""
    bound = math.ceil(fleet.memory_bound(batch=config["train"]["batch"]) / 1e6)
    return f"data, models and workers need at most {bound:,} MB beside Python and PyTorch"


def _run(
    config: Config,
    method: Method,
    fleet: Fleet,
    recorder: Recorder,
    state: State | None,
    watchers: Sequence[Watcher],
) -> State:
    try:
        return run(
            method,
            fleet,
            rounds=config.top.rounds,
            state=state,
            measure=Measuring(**config["measure"]),
            watchers=[recorder, *watchers],
            stop=recorder.stop,
        )
    except KeyboardInterrupt:
        recorder.save()
        checkpoint = load_checkpoint(recorder.folder)
        done = checkpoint.state.round if checkpoint else 0
        if checkpoint:
            fleet.load(checkpoint.fleet)
            recorder.finish(checkpoint.state, finished=False)
        deployed = getattr(fleet, "info", {}).get("mode") == "deployment"
        raise Interrupted(recorder.folder, done, "serve" if deployed else "run") from None


def write_page(folder: Path) -> None:
    """Writes report.html into a run folder."""
    from covey.report.folder import read_run
    from covey.report.page import write_report

    write_report([read_run(folder)], folder / "report.html")
