"""Cohorts on a GPU: `python -m benchmarks.gpu`, which fills the table of docs/speed.md.

A round of the workloads, one client after another and stacked, in float32 and mixed precision, compiled or not. Seconds
by the clock, after the device has finished; the most memory that PyTorch held on it. `--device cpu` tries it out.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from benchmarks import engines
from benchmarks.workloads import WORKLOADS
from covey.fleet.engine import Engine

WARM_UP = 2  # rounds that are not counted: torch.compile works in them


def variants(device: str) -> dict[str, Engine]:
    return {
        "one after another": Engine(mode="serial", lanes=False, device=device),
        "cohort": Engine(mode="cohort", device=device),
        "cohort, compiled": Engine(mode="cohort", device=device, compile=True),
        "cohort, mixed": Engine(mode="cohort", device=device, precision="mixed"),
        "cohort, mixed, compiled": Engine(mode="cohort", device=device, precision="mixed", compile=True),
    }


def seconds(workload: str, engine: Engine, rounds: int) -> tuple[float, float]:
    """The median round by the clock, and megabytes."""
    on_gpu = engine.device.startswith("cuda")
    one_round = engines.local(WORKLOADS[workload], engine)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    times = []
    for number in range(WARM_UP + rounds):
        start = time.perf_counter()
        one_round(number)
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    held = torch.cuda.max_memory_allocated() / 1e6 if on_gpu else 0.0
    return statistics.median(times[WARM_UP:]), held


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "")
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--variants", nargs="+", default=list(variants("cpu")), choices=list(variants("cpu")))
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if not options.device:
        raise SystemExit("PyTorch finds no GPU here; --device cpu tries the command out on the processor")
    gpu = torch.cuda.get_device_name() if options.device.startswith("cuda") else "processor"
    print(f"{gpu}, PyTorch {torch.__version__}, seconds per round (median of {options.rounds})\n")
    print("| workload | how | seconds | MB on the device |\n| --- | --- | ---: | ---: |")
    for workload in options.workloads:
        for name in options.variants:
            took, held = seconds(workload, variants(options.device)[name], options.rounds)
            print(f"| {workload} | {name} | {took:.3f} | {held:.0f} |", flush=True)


if __name__ == "__main__":
    main()
