"""All runs of a folder: found, read once, and read again only when their files change."""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.errors import UserError
from covey.files import read_json
from covey.folder.flat import flat
from covey.folder.read import read_config, read_summary
from covey.folder.summary import Summary
from covey.report.live.following import Following
from covey.report.wording import is_share
from covey.settings.own_code import data_name, said
from covey.terminal import printable

SKIPPED = frozenset({"checkpoint", "tensorboard", "wandb", "superlink", ".git", "__pycache__", ".venv"})
DEEPEST = 6  # folders inside one another
QUIET = 120.0  # seconds without a word, after which a run counts as stopped where the system cannot tell


@dataclass(kw_only=True, eq=False)
class WatchedRun:
    """One run as the page's table has it."""

    id: str
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    state: str = "stopped"  # running, finished, pruned, stopped or damaged
    problem: str = ""  # what is damaged
    about: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    following: Following | None = None
    stamp: tuple[float, ...] = ()
    seen: list[tuple[float, int]] = field(default_factory=list)  # when which round was seen
    sites: Mapping[str, Any] = field(default_factory=dict)  # status.json of a run over real sites

    def row(self) -> dict[str, Any]:
        return {"id": self.id, "state": self.state, "problem": self.problem, **self.about}


class RunsFolder:
    """The runs beneath a folder; `refresh` tells which of them changed."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self.root = root
        self.clock = clock
        self.runs: dict[str, WatchedRun] = {}
        self.more = True  # whether something is left to read

    def refresh(self, seconds: float = math.inf) -> tuple[list[WatchedRun], list[str]]:
        """Looks at all runs; gives those that are new or changed, and the names of those that are gone.

        What is read for the first time and would take longer than `seconds` in all waits for the next call.
        """
        found = dict(run_folders(self.root))
        gone = [name for name in self.runs if name not in found]
        for name in gone:
            del self.runs[name]
        locked = locked_inodes()
        changed: list[WatchedRun] = []
        self.more = False
        until = time.monotonic() + seconds
        for name, folder in found.items():
            if name not in self.runs and changed and time.monotonic() > until:
                self.more = True
                continue
            run = self.runs.get(name) or self.runs.setdefault(name, WatchedRun(id=name, folder=folder))
            if self._look(run, locked, until):
                changed.append(run)
            self.more |= run.following is not None and run.following.behind
        return changed, gone

    def _look(self, run: WatchedRun, locked: frozenset[int] | None, until: float) -> bool:
        """Reads the run again where it changed; one that cannot be read is a row that says why, and no more."""
        stamp = stamps(run.folder)
        if stamp == run.stamp and run.state in ("finished", "damaged"):
            return False
        try:
            return self._read(run, self._state(run, locked, stamp), stamp, until)
        except Exception as error:  # whatever a stranger wrote into one folder must not take the others away
            run.state, run.following, run.metrics, run.sites = "damaged", None, {}, {}
            run.problem = printable(str(error) if isinstance(error, UserError) else said(error))
            run.stamp = stamp
            run.about = self._common(run)
            return True

    def _read(self, run: WatchedRun, state: str, stamp: tuple[float, ...], until: float) -> bool:
        behind = run.following is not None and run.following.behind
        if stamp == run.stamp and state == run.state and not behind:
            return False
        if not run.settings or stamp[0] != (run.stamp or (0.0,))[0]:
            run.settings = flat(read_config(run.folder / "config.toml")[1])
        run.stamp, run.state, run.problem = stamp, state, ""
        if state == "finished":
            run.following = None
            self._of_summary(run)
        else:
            self._of_journal(run, until)
        check_names(run)
        return True

    def _state(self, run: WatchedRun, locked: frozenset[int] | None, stamp: tuple[float, ...]) -> str:
        end = ended(run.folder) if stamp[1] else ""
        if end == "finished":
            return end
        if locked is not None:
            try:
                return "running" if os.stat(run.folder).st_ino in locked else end or "stopped"
            except OSError:
                return "stopped"
        return "running" if self.clock() - max(stamp) < QUIET else end or "stopped"

    def _common(self, run: WatchedRun) -> dict[str, Any]:
        settings = run.settings
        method = str(settings.get("method.name", ""))
        return {
            "name": str(settings.get("name") or method),
            "method": method,
            "dataset": data_name(str(settings.get("data.name", "")), settings.get("data.path")),
            "seed": settings.get("seed", 0),
            "rounds": whole(settings, "rounds"),
            "clients": whole(settings, "data.clients"),
            "validation": "data.validation" in settings,
            "at": run.stamp[0],
        }

    def _of_summary(self, run: WatchedRun) -> None:
        summary = read_summary(run.folder / "summary.json") or Summary()
        run.metrics = dict(summary.last)
        run.about = self._common(run) | {
            **({"dataset": summary.dataset} if summary.dataset else {}),
            "round": summary.rounds_done,
            "clients": summary.clients,
            "seconds": summary.cost.seconds,
            "bytes": summary.cost.bytes,
            "messages": summary.cost.messages,
        }

    def _of_journal(self, run: WatchedRun, until: float) -> None:
        follow = run.following = run.following or Following(path=run.folder / "metrics.jsonl")
        follow.catch_up(until)
        run.metrics = dict(follow.last)
        run.seen = [*run.seen, (self.clock(), follow.round)][-30:]
        run.sites = sites_in(run.folder)
        now = run.sites.get("now", {})
        run.about = self._common(run) | {
            "round": follow.round,
            "seconds": follow.seconds,
            "bytes": follow.sent,
            "messages": follow.messages,
            "left": self._left(run, follow) if run.state == "running" else None,
            "working": follow.busy.get(follow.round, follow.replied.get(follow.round, 0)),
            "groups": len(follow.group_sizes()),
            **({"dataset": str(now["dataset"])} if now.get("dataset") else {}),
            **({"waits": now.get("waits_for", [])} if now and run.state == "running" else {}),
        }

    def _left(self, run: WatchedRun, follow: Following) -> float | None:
        """Seconds to the last round at the pace that was seen, or at that of the whole run so far."""
        todo = whole(run.settings, "rounds") - follow.round
        (first, at), (last, now) = run.seen[0], run.seen[-1]
        if now - at >= 3:
            return todo * (last - first) / (now - at)
        spent = run.stamp[2] - run.stamp[0]
        return todo * spent / follow.round if follow.round and spent > 0 else None


def run_folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Every run folder beneath `root`, or itself, by its name from there; nothing is looked for inside a run."""
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        names = {entry.name for entry in entries}
        if "config.toml" in names and names & {
            "metrics.parquet",
            "metrics.jsonl",
            "checkpoint.json",
            "status.json",
        }:
            name = str(folder.relative_to(root))
            yield (root.name if name == "." else name), folder
        elif depth < DEEPEST:
            waiting += [
                (Path(entry.path), depth + 1)
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED
            ]


def stamps(folder: Path) -> tuple[float, ...]:
    """When its files were last written; 0 for what is not there."""
    found = []
    for name in ("config.toml", "summary.json", "metrics.jsonl", "status.json"):
        try:
            found.append(os.stat(folder / name).st_mtime)
        except OSError:
            found.append(0.0)
    return tuple(found)


def ended(folder: Path) -> str:
    """finished, pruned, or "" where a run is under way or was interrupted."""
    summary = read_summary(folder / "summary.json") or Summary()
    return "finished" if summary.finished else "pruned" if summary.pruned else ""


def check_names(run: WatchedRun) -> None:
    """A name that no metric can have is said of this run, before it is a column of all."""
    try:
        for name in run.metrics:
            is_share(name)
    except UserError as error:
        file = "summary.json" if run.state == "finished" else "metrics.jsonl"
        raise UserError(f"{run.folder / file} is damaged: {error}") from error


def whole(settings: Mapping[str, Any], name: str) -> int:
    """A setting that is a whole number; 0 where it is none."""
    value = settings.get(name, 0)
    return value if type(value) is int else 0


def sites_in(folder: Path) -> Mapping[str, Any]:
    """What `covey serve` last wrote of the sites; nothing where it wrote none."""
    path = folder / "status.json"
    try:
        found = read_json(path)
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict) or not isinstance(found.get("now"), dict):
        raise UserError(f"{path} is damaged: it does not say what the sites do")
    return found


def locked_inodes() -> frozenset[int] | None:
    """What some process on this machine has locked, without touching any lock; None where the system does not say."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    return frozenset(int(line.split()[5].rpartition(":")[2]) for line in lines if "FLOCK" in line)
