"""See the package: python -m benchmarks.peers."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import variant
from benchmarks.__main__ import REFERENCE, WARM_UP, VariantError, measure, table
from benchmarks.peers.environments import PEERS, command, prepare
from benchmarks.workloads import WORKLOADS

OURS = [REFERENCE, "covey, torch", "covey, lanes"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", nargs="+", default=["W1", "W3"], choices=list(WORKLOADS))
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    missing = {name: why for name in options.peers if (why := prepare(PEERS[name]))}
    everything: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as logs:
        for workload in options.workloads:
            commands = {name: variant.command(name, workload) for name in OURS}
            for name in options.peers:
                if name not in missing:
                    commands[name] = command(PEERS[name], workload, WARM_UP + options.rounds)
            try:
                everything[workload] = measure(commands, options.rounds, Path(logs))
            except VariantError as error:
                raise SystemExit(str(error)) from error
            Console().print(table(workload, everything[workload]))
    for name, why in missing.items():
        print(f"{name} was left out, it cannot be installed: {why}")
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
