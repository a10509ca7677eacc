"""One engine in a process of its own: reads a round number a line, answers with what the round took."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import psutil

from benchmarks import engines, raw
from benchmarks.workloads import WORKLOADS, Workload
from covey.fleet.local import Engine

VARIANTS: dict[str, Callable[[Workload], Callable[[int], None]]] = {
    "raw, 2 processes": lambda w: raw.processes(w, 2),
    "raw, 1 thread": lambda w: raw.serial(w, 1),
    "raw, 2 threads": lambda w: raw.serial(w, 2),
    "covey, torch": lambda w: engines.local(w, Engine(mode="processes", workers=2, lanes=False)),
    "covey, lanes": lambda w: engines.local(w, Engine(workers=2)),
}


def cpu_seconds() -> float:
    """CPU time of this process and of its children."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(t.user + t.system for t in (process.cpu_times() for process in family))


def memory() -> int:
    """Bytes that this process and its children hold, shared pages counted once."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(process.memory_full_info().pss for process in family)


def main() -> None:
    one_round = VARIANTS[sys.argv[1]](WORKLOADS[sys.argv[2]])
    for line in sys.stdin:
        cpu, wall = cpu_seconds(), time.perf_counter()
        one_round(int(line))
        took = {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu, "memory": memory()}
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
