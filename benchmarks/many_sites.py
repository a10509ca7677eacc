"""`python -m benchmarks.many_sites`: what a round costs with more and more real sites on one machine.

Server, SuperLink and sites are processes of their own with keys and TLS; the sites are forked from one process that
has imported everything, so that fifty fit into memory. Needs Flower: run it in `.venv-engines`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.deploy.live_deployment import Deployment

TABLES = """
rounds = {rounds}
seed = 7
[data]
name = "digits"
clients = {sites}
[partition]
name = "iid"
[method]
name = "fedavg"
per_round = {sites}
[model]
name = "mlp"
hidden = {hidden}
[train]
lr = 0.1
batch = 16
[engine]
lanes = false
[devices]
deadline = 900
"""


def measured(sites: int, rounds: int, hidden: Sequence[int]) -> dict[str, Any]:
    """One run: seconds and bytes per round, CPU seconds per round by process, and the server's memory."""
    with tempfile.TemporaryDirectory() as folder:
        tables = TABLES.format(sites=sites, rounds=rounds, hidden=list(hidden))
        with Deployment(Path(folder), sites=sites, tables=tables) as here:
            joined = [here.join(number) for number in range(sites)]
            server = here.serve("run")
            log = here.folder / "run" / "audit.jsonl"
            wait_for_round(log, 2, server)
            # The first round waits for sites to start; what follows is the usual.
            server_process = psutil.Process(server.process.pid)
            (link,) = server_process.children()
            parties = {
                "server": [server_process],
                "SuperLink": [link],
                "sites": [psutil.Process(s.process.pid) for s in joined],
            }
            began, before = time.monotonic(), {name: cpu(those) for name, those in parties.items()}
            peak: dict[str, float] = {"server": 0.0, "SuperLink": 0.0}
            while server.process.is_alive():
                for name in peak:
                    peak[name] = max(peak[name], memory(parties[name][0]))
                after = {name: cpu(those) or before[name] for name, those in parties.items()}
                spent = {name: after[name] - before[name] for name in parties}
                wall = time.monotonic() - began
                if last_round(log) >= rounds:
                    break
                time.sleep(0.5)
            assert server.end() == 0, server.said()
            counted = rounds - 2
            asked = [json.loads(line) for line in log.read_text().splitlines()]
            exchanges = len([line for line in asked if line["event"] == "asked"]) / rounds
            summary = here.summary("run")
            cost = summary["cost"]
            bytes_round = (cost["bytes_down"] + cost["bytes_up"] + cost["evaluation_bytes"]) / rounds
            return {
                "sites": sites,
                "seconds per round": wall / counted,
                "exchanges per round": exchanges,
                "kB per site and exchange": bytes_round / sites / exchanges / 1e3,
                **{f"{name} CPU s": spent[name] / counted for name in parties},
                **{f"{name} MB": value for name, value in peak.items()},
                "lost": summary.get("lost", {}).get("count", 0),
            }


def wait_for_round(log: Path, number: int, server: Any) -> None:
    while last_round(log) < number:
        assert server.process.is_alive(), server.said()
        time.sleep(0.2)


def last_round(log: Path) -> int:
    """The round that a run is in, by its log."""
    if not log.exists():
        return 0
    found = [json.loads(line).get("round", 0) for line in log.read_text().splitlines() if line.endswith("}")]
    return max(found, default=0)


def cpu(processes: Sequence[psutil.Process]) -> float:
    """CPU seconds so far; of a process that has ended none are known."""
    try:
        return sum(sum(process.cpu_times()[:2]) for process in processes)
    except psutil.NoSuchProcess:
        return 0.0


def memory(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss / 2**20)
    except psutil.NoSuchProcess:
        return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[5, 10, 20, 50])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--hidden", type=int, nargs="+", default=[64])
    given = parser.parse_args()
    rows = [measured(sites, given.rounds, given.hidden) for sites in given.sites]
    print("| " + " | ".join(rows[0]) + " |")
    print("|" + " --- |" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(f"{value:.3g}" for value in row.values()) + " |")
    load = statistics.fmean(psutil.getloadavg())
    print(f"{given.rounds} rounds, {psutil.cpu_count()} cores, load {load:.0f}")


if __name__ == "__main__":
    main()
