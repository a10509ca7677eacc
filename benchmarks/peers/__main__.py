"""See the package: python -m benchmarks.peers."""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import bounds, variant
from benchmarks.__main__ import REFERENCE, WARM_UP, VariantError, measure, table
from benchmarks.peers import whole
from benchmarks.peers.environments import PEERS, command, prepare
from benchmarks.workloads import WHOLE, WHOLE_ROUNDS, WORKLOADS

OURS = [REFERENCE, "covey, torch", "covey, lanes"]


def rounds_of(workload: str, ours: list[str], peers: list[str], rounds: int, left_out: dict[str, str]) -> Any:
    """A workload's rounds in turn; a peer that fails in its first one is left out, with what it said."""
    with tempfile.TemporaryDirectory() as logs:
        while True:
            commands = {name: variant.command(name, workload) for name in ours}
            for name in peers:
                if name not in left_out:
                    commands[name] = command(PEERS[name], workload, WARM_UP + rounds)
            try:
                return measure(commands, rounds, Path(logs))
            except VariantError as error:
                if error.name not in PEERS:
                    raise SystemExit(str(error)) from error
                left_out[error.name] = str(error)


def whole_runs(
    ours: list[str], peers: list[str], rounds: int, left_out: dict[str, str]
) -> dict[str, whole.Found]:
    """One run after the other."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        wanted = [name for name in (*ours, *peers) if name not in left_out]
        there = whole.commands(wanted, Path(place), rounds)
        for name, words in there.items():
            try:
                found[name] = whole.run(words, Path(place) / f"{len(found)}.log")
                print(f"{name}: {found[name]}", flush=True)
            except RuntimeError as error:
                left_out[name] = str(error)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--workloads", nargs="+", default=[*WORKLOADS, WHOLE.name], choices=[*WORKLOADS, WHOLE.name]
    )
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--ours", nargs="*", default=[*OURS, *whole.OURS], choices=[*OURS, *whole.OURS])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--whole-rounds", type=int, default=WHOLE_ROUNDS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    left_out = {name: why for name in options.peers if (why := prepare(PEERS[name]))}
    speed = bounds.gflops()
    everything: dict[str, Any] = {"gflops": speed}
    for workload in options.workloads:
        if workload == WHOLE.name:
            ours = [name for name in whole.OURS if name in options.ours]
            runs = whole_runs(ours, options.peers, options.whole_rounds, left_out)
            if runs:
                Console().print(whole.table(runs))
            everything[workload] = {name: asdict(one) for name, one in runs.items()}
            continue
        ours = [name for name in OURS if name in options.ours]
        everything[workload] = rounds_of(workload, ours, options.peers, options.rounds, left_out)
        Console().print(table(workload, everything[workload]))
        print(bounds.told(WORKLOADS[workload], speed))
    for name, why in left_out.items():
        print(f"{name} was left out: {why}")
    if options.json:
        options.json.write_text(json.dumps(everything | {"left out": left_out}, indent=1))


if __name__ == "__main__":
    main()
