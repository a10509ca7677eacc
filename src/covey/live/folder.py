"""All runs of a folder: found, read once, and read again only when their files change."""

from __future__ import annotations

import json
import math
import os
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.live.following import Following
from covey.trackers.flat import flat

SKIPPED = frozenset({"checkpoint", "tensorboard", "wandb", "superlink", ".git", "__pycache__", ".venv"})
DEEPEST = 6  # folders inside one another
QUIET = 120.0  # seconds without a word, after which a run counts as stopped where the system cannot tell


@dataclass(kw_only=True, eq=False)
class Run:
    """One run as the page's table has it."""

    id: str
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    state: str = "stopped"  # running, finished or stopped
    about: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    following: Following | None = None
    stamp: tuple[float, ...] = ()
    seen: list[tuple[float, int]] = field(default_factory=list)  # when which round was seen

    def row(self) -> dict[str, Any]:
        return {"id": self.id, "state": self.state, **self.about}


class RunsFolder:
    """The runs beneath a folder; `refresh` tells which of them changed."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self.root = root
        self.clock = clock
        self.runs: dict[str, Run] = {}
        self.more = True  # whether something is left to read

    def refresh(self, seconds: float = math.inf) -> tuple[list[Run], list[str]]:
        """Looks at all runs; those that are new or changed, and the names of those that are gone.

        What there is to read for the first time and takes longer than so many seconds waits for the next call.
        """
        found = dict(run_folders(self.root))
        gone = [name for name in self.runs if name not in found]
        for name in gone:
            del self.runs[name]
        locked = locked_inodes()
        changed: list[Run] = []
        self.more = False
        until = time.monotonic() + seconds
        for name, folder in found.items():
            if name not in self.runs and changed and time.monotonic() > until:
                self.more = True
                continue
            run = self.runs.get(name) or self.runs.setdefault(name, Run(id=name, folder=folder))
            if self._look(run, locked, until):
                changed.append(run)
            self.more |= run.following is not None and run.following.behind
        return changed, gone

    def _look(self, run: Run, locked: frozenset[int] | None, until: float) -> bool:
        """Reads the run again where it changed."""
        stamp = stamps(run.folder)
        if stamp == run.stamp and run.state == "finished":
            return False
        state = self._state(run, locked, stamp)
        behind = run.following is not None and run.following.behind
        if stamp == run.stamp and state == run.state and not behind:
            return False
        if not run.settings or stamp[0] != (run.stamp or (0.0,))[0]:
            run.settings = settings_in(run.folder / "config.toml")
        run.stamp, run.state = stamp, state
        if state == "finished":
            run.following = None
            self._of_summary(run)
        else:
            self._of_journal(run, until)
        return True

    def _state(self, run: Run, locked: frozenset[int] | None, stamp: tuple[float, ...]) -> str:
        if stamp[1] and finished(run.folder):
            return "finished"
        if locked is not None:
            try:
                return "running" if os.stat(run.folder).st_ino in locked else "stopped"
            except OSError:
                return "stopped"
        return "running" if self.clock() - max(stamp) < QUIET else "stopped"

    def _common(self, run: Run) -> dict[str, Any]:
        settings = run.settings
        method = str(settings.get("method.name", ""))
        return {
            "name": str(settings.get("name") or method),
            "method": method,
            "dataset": str(settings.get("data.name", "")),
            "seed": settings.get("seed", 0),
            "rounds": settings.get("rounds", 0),
            "clients": settings.get("data.clients", 0),
            "validation": "data.validation" in settings,
            "at": run.stamp[0],
        }

    def _of_summary(self, run: Run) -> None:
        summary = read_json(run.folder / "summary.json")
        cost = summary.get("cost", {})
        run.metrics = {k: v for k, v in summary.get("last", {}).items() if isinstance(v, int | float)}
        run.about = self._common(run) | {
            "round": summary.get("rounds_done", 0),
            "clients": summary.get("clients", 0),
            "seconds": cost.get("seconds", 0.0),
            "bytes": sum(cost.get(f"bytes_{way}", 0) for way in ("up", "down", "peer")),
            "messages": cost.get("messages", 0),
        }

    def _of_journal(self, run: Run, until: float) -> None:
        follow = run.following = run.following or Following(path=run.folder / "metrics.jsonl")
        follow.catch_up(until)
        run.metrics = dict(follow.last)
        run.seen = [*run.seen, (self.clock(), follow.round)][-30:]
        sites = read_json(run.folder / "status.json")
        run.about = self._common(run) | {
            "round": follow.round,
            "seconds": follow.seconds,
            "bytes": follow.sent,
            "messages": follow.messages,
            "left": self._left(run, follow) if run.state == "running" else None,
            "working": follow.busy.get(follow.round, follow.replied.get(follow.round, 0)),
            "groups": len(follow.group_sizes()),
            **({"waits": sites["now"].get("waits_for", [])} if "now" in sites else {}),
        }

    def _left(self, run: Run, follow: Following) -> float | None:
        """Seconds to the last round at the pace that was seen, or at that of the whole run so far."""
        todo = int(run.settings.get("rounds", 0)) - follow.round
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
        if "config.toml" in names and names & {"metrics.parquet", "metrics.jsonl", "checkpoint.json"}:
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


def finished(folder: Path) -> bool:
    return bool(read_json(folder / "summary.json").get("finished"))


def settings_in(path: Path) -> dict[str, Any]:
    try:
        return flat(tomllib.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def read_json(path: Path) -> dict[str, Any]:
    """A file of a run, or nothing where it is not there or only half written."""
    try:
        found = json.loads(path.read_bytes())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def locked_inodes() -> frozenset[int] | None:
    """What some process on this machine has locked, without touching any lock; None where the system does not say."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    return frozenset(int(line.split()[5].rpartition(":")[2]) for line in lines if "FLOCK" in line)
