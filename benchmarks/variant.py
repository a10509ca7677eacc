"""One engine in a process of its own: reads a round number per line, answers with what the round took."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable

from benchmarks import engines, raw
from benchmarks.meter import Meter
from benchmarks.peers.environments import ONE_THREAD
from benchmarks.workloads import WORKLOADS, Workload
from covey.fleet.engine import Engine

VARIANTS: dict[str, Callable[[Workload], Callable[[int], object]]] = {
    "raw, 2 processes": lambda w: raw.processes(w, 2),
    "raw, 1 thread": lambda w: raw.serial(w, 1),
    "raw, 2 threads": lambda w: raw.serial(w, 2),
    "covey, torch": lambda w: engines.local(w, Engine(mode="processes", workers=2, lanes=False)),
    "covey, lanes": lambda w: engines.local(w, Engine(workers=2)),
}
if importlib.util.find_spec("ray"):  # a Ray cluster on this machine, against the engines above
    VARIANTS |= {
        "ray, torch": lambda w: engines.local(w, Engine(mode="ray", workers=2, lanes=False)),
        "ray, lanes": lambda w: engines.local(w, Engine(mode="ray", workers=2)),
    }


def command(name: str, workload: str) -> list[str]:
    """How to start a variant on a workload."""
    return ["env", ONE_THREAD, sys.executable, "-m", "benchmarks.variant", name, workload]


def main() -> None:
    one_round = VARIANTS[sys.argv[1]](WORKLOADS[sys.argv[2]])
    for line in sys.stdin:
        meter = Meter()
        one_round(int(line))
        print(meter.answer(), flush=True)


if __name__ == "__main__":
    main()
