"""What `covey` costs beside FedAvg and fine-tuned FedAvg: training and describing, measuring, what follows.

python -m benchmarks.flagship [--clients 100] [--rounds 30] [--turns 3] [--measure end every] [--dataset mnist]

Each run is a process of its own; the methods take turns, so that a busy machine is busy for all of them. CPU seconds
(user and system, all threads and children) without the imports; medians over the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from experiments.origin import processor

METHODS = ("fedavg", "fine-tuned", "covey")
STEPS = ("train", "measure", "after")


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def one(method: str, measured: str, options: argparse.Namespace) -> dict[str, float]:
    """One run in this process: seconds up to the last round without measuring, of measuring, and after it."""
    from covey.parts.measure import Measuring
    from covey.runs.config import resolve
    from covey.runs.run import run_config

    spent, ends = [0.0], [0.0]
    measure = Measuring.__call__

    def timed(*given: Any, **more: Any) -> Any:
        begin = cpu_seconds()
        found = measure(*given, **more)
        spent[0] += cpu_seconds() - begin
        return found

    Measuring.__call__ = timed  # type: ignore[method-assign]
    tables = {
        "rounds": options.rounds,
        "data": {"name": options.dataset, "clients": options.clients},
        "method": {"name": method},
        "measure": {"every": 1 if measured == "every" else options.rounds},
    }
    begin = cpu_seconds()
    with tempfile.TemporaryDirectory() as place:
        run_config(resolve(tables), Path(place) / "run", watchers=[lambda _: ends.append(cpu_seconds())])
        whole = cpu_seconds() - begin
    training = ends[-1] - begin - spent[0]
    return {"train": training, "measure": spent[0], "after": whole - training - spent[0]}


def alone(method: str, measured: str, words: list[str]) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.flagship", *words, "--one", method, measured]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(words: list[str]) -> None:
    """A row for each method, with its seconds over those of FedAvg (training) and of fine-tuned FedAvg (measuring)."""
    options = parser().parse_args(words)
    if options.one:
        print(json.dumps(one(*options.one, options)))
        return
    print(f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f} at the start")
    for measured in options.measure:
        found: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
        for _ in range(options.turns):
            for method in METHODS:
                found[method].append(alone(method, measured, words))
        table = {method: {step: median(runs, step) for step in STEPS} for method, runs in found.items()}
        print_table(measured, table, partial(ratio, table))
    print(f"load {os.getloadavg()[0]:.0f} at the end")


def median(runs: list[dict[str, float]], step: str) -> float:
    return statistics.median(run[step] for run in runs)


def ratio(table: dict[str, dict[str, float]], step: str, method: str, other: str) -> str:
    return f"{table[method][step] / max(table[other][step], 1e-9):.2f}"


def print_table(
    measured: str, table: dict[str, dict[str, float]], ratio: Callable[[str, str, str], str]
) -> None:
    """A table for docs/speed.md."""
    when = "after every round" if measured == "every" else "after the last round"
    print(f"\n| measured {when} | training and describing | / FedAvg | measuring | / fine-tuned | after |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for method, row in table.items():
        print(
            f"| {method} | {row['train']:.2f} | {ratio('train', method, 'fedavg')} | {row['measure']:.2f} "
            f"| {ratio('measure', method, 'fine-tuned')} | {row['after']:.2f} |",
            flush=True,
        )


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    found.add_argument("--clients", type=int, default=100)
    found.add_argument("--rounds", type=int, default=30)
    found.add_argument("--turns", type=int, default=3)
    found.add_argument("--dataset", default="mnist")
    found.add_argument("--measure", nargs="+", choices=("end", "every"), default=["end"])
    found.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
