"""What a round took: CPU and wall seconds and memory of a process with all its children."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil


def family() -> list[psutil.Process]:
    return [psutil.Process(), *psutil.Process().children(recursive=True)]


def cpu_seconds() -> float:
    """CPU time of this process and of its children, not in steps of 0.01 s as `psutil` tells it."""
    return time.process_time() + sum(on_cpu(process.pid) for process in family()[1:])


def on_cpu(process: int) -> float:
    """Seconds that another process' threads have run, as Linux' scheduler counts them."""
    told = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in told) / 1e9


def memory() -> int:
    """Bytes that this process and its children hold, shared pages counted once."""
    return sum(process.memory_full_info().pss for process in family())


class Meter:
    """Starts with its creation; `answer` is a line for whoever asked for the round."""

    def __init__(self) -> None:
        self.cpu, self.wall = cpu_seconds(), time.perf_counter()

    def answer(self) -> str:
        wall, cpu = time.perf_counter() - self.wall, cpu_seconds() - self.cpu
        return json.dumps({"wall": wall, "cpu": cpu, "memory": memory()})
