"""From the command to the last number: 100 clients, MNIST, 50 rounds, the test set measured after each of them.

Every simulator is a process of its own, run to its end; CPU seconds are those of the process and of all it started.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from rich.table import Table

from benchmarks.peers.environments import PEERS, command
from benchmarks.workloads import WHOLE, WHOLE_ROUNDS

LOOK = 0.1  # seconds between two looks at the processes
COVEY = "covey run"
WITH_LOCAL = "covey run, every client's own test set too"
RAW = "raw, 2 processes"
OURS = [COVEY, WITH_LOCAL, RAW]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a run took, and the accuracy of its last five rounds."""

    cpu: float
    wall: float
    accuracy: float
    rounds: int


def commands(wanted: list[str], place: Path, rounds: int = WHOLE_ROUNDS) -> dict[str, list[str]]:
    """How to start each of them; what one reads from files is written first, and not timed."""
    ours = {
        COVEY: covey(place / "covey", rounds),
        WITH_LOCAL: covey(place / "local", rounds, local_test=True),
        RAW: [sys.executable, "-m", "benchmarks.raw", WHOLE.name, str(rounds)],
    }
    found = {}
    for name in wanted:
        if name in ours:
            found[name] = ours[name]
            continue
        peer = PEERS[name]
        kept = (str(place / "files"),) if peer.files else ()
        if kept:
            subprocess.run(command(peer, WHOLE.name, 0, *kept), check=True)
        found[name] = command(peer, WHOLE.name, rounds, *kept)
    return found


def covey(folder: Path, rounds: int, *, local_test: bool = False) -> list[str]:
    """Covey's own command, with journal, checkpoints and report as in any run."""
    settings = (
        f"data.clients={WHOLE.clients}",
        "partition.name=iid",
        f"model.name={WHOLE.model}",
        f"method.per_round={WHOLE.per_round}",
        f"train.batch={WHOLE.batch}",
        f"train.lr={WHOLE.lr}",
        "train.epochs=1",
        "measure.every=1",
        f"measure.local_test={str(local_test).lower()}",
    )
    words = [sys.executable, "-m", "covey", "run", "--method", "fedavg", "--dataset", "mnist"]
    words += ["--rounds", str(rounds), "--out", str(folder)]
    return [*words, *(word for setting in settings for word in ("--set", setting))]


def run(words: list[str], log: Path) -> Found:
    """Runs a command to its end; the answers of a simulator are accuracies, Covey's are in its journal."""
    start = time.perf_counter()
    with log.open("w") as errors, (log.with_suffix(".out")).open("w") as answers:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=answers, stderr=errors)
        spent = watched(psutil.Process(process.pid))
    wall = time.perf_counter() - start
    if process.wait():
        raise RuntimeError((log.read_text().strip() or "it said nothing").splitlines()[-1])
    told = accuracies(words, log.with_suffix(".out"))
    return Found(cpu=spent, wall=wall, accuracy=statistics.mean(told[-5:]), rounds=len(told))


def watched(root: psutil.Process) -> float:
    """CPU seconds of a process and of all that it starts, by looking at them until it ends."""
    seen: dict[tuple[int, float], float] = {}
    while root.is_running() and root.status() != psutil.STATUS_ZOMBIE:
        for process in [root, *root.children(recursive=True)]:
            try:
                times = process.cpu_times()
                seen[process.pid, process.create_time()] = times.user + times.system
            except psutil.Error:  # it has just ended
                continue
        time.sleep(LOOK)
    return sum(seen.values())


def accuracies(words: list[str], answers: Path) -> list[float]:
    """The accuracy on the global test set after each round."""
    if "--out" not in words:
        return [float(line) for line in answers.read_text().split()]
    folder = Path(words[words.index("--out") + 1])
    wanted = [("split", "=", "global-test"), ("metric", "=", "accuracy")]
    found: list[float] = pq.read_table(folder / "metrics.parquet", filters=wanted)["value"].to_pylist()
    return found


def table(results: dict[str, Found]) -> Table:
    told = next(iter(results.values())).rounds
    title = f"{WHOLE.clients} clients, MNIST, {told} rounds, measured every round"
    shown = Table(title=title, title_justify="left")
    for column in ("engine", "CPU s", "ratio", "wall s", "ratio", "accuracy"):
        shown.add_column(column, justify="left" if column == "engine" else "right")
    base = results.get(COVEY) or next(iter(results.values()))
    for name, r in results.items():
        shown.add_row(
            name,
            f"{r.cpu:.1f}",
            f"{r.cpu / base.cpu:.1f}",
            f"{r.wall:.1f}",
            f"{r.wall / base.wall:.1f}",
            f"{r.accuracy:.4f}",
        )
    return shown
