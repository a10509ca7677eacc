"""How long a large fleet takes to set up, and whether memory grows over many rounds: `python -m benchmarks.fleet`."""

from __future__ import annotations

import time

import psutil

from covey.core.round import RoundEnd, run_rounds
from covey.runs.config import fleet_of, resolve

CLIENTS = 10_000
ROUNDS = 200


def set_up() -> float:
    """CPU seconds for 10,000 clients on MNIST (digits cannot be cut so small), data loading included."""
    tables = {"data": {"name": "mnist", "clients": CLIENTS}, "partition": {"name": "dir-class", "minimum": 1}}
    start = time.process_time()
    fleet_of(resolve(tables)).begin(1)
    return time.process_time() - start


def growth() -> tuple[float, float]:
    """Megabytes of this process after round 20 and after round 200."""
    config = resolve(
        {"data": {"name": "digits", "clients": 50}, "rounds": ROUNDS, "engine": {"mode": "serial"}}
    )
    fleet, held = fleet_of(config), {}

    def watch(end: RoundEnd) -> None:
        held[end.state.round] = psutil.Process().memory_info().rss / 1e6

    run_rounds(config.method, fleet, rounds=ROUNDS, watchers=[watch])
    return held[20], held[ROUNDS]


if __name__ == "__main__":
    print(f"{CLIENTS:,} clients set up in {set_up():.2f} CPU seconds")
    early, late = growth()
    print(f"memory after round 20: {early:.1f} MB, after round {ROUNDS}: {late:.1f} MB")
