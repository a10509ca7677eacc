"""`make bench`: all engines interleaved, round by round, so that a busy machine is busy for all of them.

python -m benchmarks [--workloads W1 W3] [--variants "covey, torch"] [--rounds 7] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.variant import VARIANTS, command
from benchmarks.workloads import WORKLOADS

REFERENCE = "raw, 2 processes"
WARM_UP = 2  # rounds that are not counted


class VariantError(Exception):
    """A variant ended before its time."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def measure(commands: dict[str, list[str]], rounds: int, logs: Path) -> dict[str, dict[str, float]]:
    """Median CPU and wall seconds per round, and the most memory, of every variant; they take turns."""
    running = {}
    for name, words in commands.items():
        with (logs / name).open("w") as log:
            running[name] = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
    found: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    for number in range(WARM_UP + rounds):
        for name, process in running.items():
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{number}\n")
                process.stdin.flush()
            line = process.stdout.readline()
            while line and not line.startswith("{"):  # what a simulator says by itself
                line = process.stdout.readline()
            if not line:
                _end(running.values())
                last = ((logs / name).read_text().strip() or "it said nothing").splitlines()[-1]
                raise VariantError(name, f"{name} ended in round {number}: {last}")
            answer = json.loads(line)
            if number >= WARM_UP:
                found[name].append(answer)
    _end(running.values())
    return {
        name: {
            "cpu": statistics.median(a["cpu"] for a in answers),
            "wall": statistics.median(a["wall"] for a in answers),
            "memory": max(a["memory"] for a in answers),
        }
        for name, answers in found.items()
    }


def _end(running: Iterable[subprocess.Popen[str]]) -> None:
    """Nothing more to do: each ends by itself, and takes its own workers along."""
    for process in running:
        process.communicate()


def table(workload: str, results: dict[str, dict[str, float]]) -> Table:
    shown = Table(
        title=f"{workload}: seconds per round (median), and ratio to {REFERENCE}", title_justify="left"
    )
    for column in ("engine", "CPU s", "ratio", "wall s", "ratio", "memory MB"):
        shown.add_column(column, justify="left" if column == "engine" else "right")
    base = results.get(REFERENCE) or next(iter(results.values()))
    for name, r in results.items():
        shown.add_row(
            name,
            f"{r['cpu']:.3f}",
            f"{r['cpu'] / base['cpu']:.2f}",
            f"{r['wall']:.3f}",
            f"{r['wall'] / base['wall']:.2f}",
            f"{r['memory'] / 1e6:.0f}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    everything: dict[str, Any] = {}
    for workload in options.workloads:
        commands = {name: command(name, workload) for name in options.variants}
        with tempfile.TemporaryDirectory() as logs:
            everything[workload] = measure(commands, options.rounds, Path(logs))
        Console().print(table(workload, everything[workload]))
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
