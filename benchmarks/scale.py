"""Clients against seconds and megabytes, which fill the tables of docs/speed.md.

python -m benchmarks.scale [1000 100000 ...]      FedAvg, 100 clients of 4 samples a round
python -m benchmarks.scale methods [cafa ...]     the methods of the papers, 100,000 clients
python -m benchmarks.scale one 1000 haccs 3 4     a single run, in this process: 3 rounds, 4 samples per client

Every number of clients is a process of its own; the global test set is measured every round, with journal, checkpoint
and report as in any run. CPU seconds, not seconds on the wall.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covey.data.types import Dataset
from covey.runs.config import resolve

SAMPLES = 4  # a client
FEATURES = 16
TESTED = 1000
CLIENTS = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS = 10
SIDE = 8  # pixels
# What a method has beside its name; in those without a server everybody trains, or the groups' representatives do.
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"per_round": 100},
    "cafa": {"per_round": 100},
    "haccs": {"per_round": 100},
    "cfic": {"per_round": 100},
    "embedding": {"per_round": 100},
    "covey": {"per_round": 100},
    "hierarchical": {},
    "semi-decentralized": {},
    "decentralized": {"backbone": "ring"},
}
PAPERS = tuple(name for name in METHODS if name != "fedavg")
MANY = 100_000  # clients of the papers' methods
FEW_ROUNDS = 3  # of them


def cloud(*, thousands: int = 4) -> Dataset:
    """Two classes of points; so many thousands of them to train on."""
    samples = 1000 * thousands
    rng = np.random.default_rng(0)
    x = rng.standard_normal((samples + TESTED, FEATURES), dtype=np.float32)
    y = (x[:, :2].sum(axis=1) > 0).astype(np.int64)
    return Dataset(
        name="cloud",
        x=torch.from_numpy(x),
        y=torch.from_numpy(y),
        train=np.arange(samples),
        test=np.arange(samples, samples + TESTED),
        classes=("low", "high"),
    )


def pictures(*, thousands: int = 4) -> Dataset:
    """The same as small pictures, for methods that look at such."""
    data = cloud(thousands=thousands)
    x = torch.zeros(len(data.x), 1, SIDE, SIDE)
    x.view(len(x), -1)[:, :FEATURES] = data.x
    return replace(data, name="pictures", x=x)


def tables(clients: int, method: str, rounds: int, samples: int = SAMPLES) -> dict[str, Any]:
    """The run as a file would say it."""
    kind = "pictures" if method in ("embedding", "covey") else "cloud"
    return {
        "rounds": rounds,
        "data": {
            "name": f"{Path(__file__).resolve()}:{kind}",
            "clients": clients,
            "thousands": samples * clients // 1000,
        },
        "partition": {"name": "iid"},
        "model": {"name": "mlp", "hidden": [8]},
        "method": {"name": method, **METHODS[method]},
        "train": {"batch": 4, "lr": 0.1},
        "measure": {"local_test": False},
    }


def one(clients: int, method: str = "fedavg", rounds: int = ROUNDS, samples: int = SAMPLES) -> dict[str, Any]:
    """What one run takes, in this process."""
    from covey.runs.run import run_config

    before = time.process_time()
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        run_config(
            resolve(tables(clients, method, rounds, samples)),
            folder,
            watchers=[lambda _: ends.append(time.process_time())],
        )
        whole = time.process_time() - before
        sizes = {file.name: file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    each = np.diff(ends)
    return {
        "clients": clients,
        "first": ends[0] - before,
        "round": float(np.median(each)),
        "end": whole - (ends[-1] - before),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "journal": sizes.get("metrics.parquet", 0) / 1e6,
        "checkpoint": sum(size for name, size in sizes.items() if name.endswith(".safetensors")) / 1e6,
        "report": sizes.get("report.html", 0) / 1e6,
    }


def alone(*words: object) -> dict[str, Any]:
    """One run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "one", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: exit code {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(arguments: list[str]) -> None:
    """A table; of FedAvg with the slope of a round's seconds over clients."""
    if arguments[:1] == ["one"]:
        clients, *more = arguments[1:]
        print(json.dumps(one(int(clients), *more[:1], *map(int, more[1:]))))
        return
    if arguments[:1] == ["methods"]:
        for name in arguments[1:] or PAPERS:
            print(row_of(alone(MANY, name, FEW_ROUNDS), name), flush=True)
        return
    found = []
    for clients in [int(a) for a in arguments] or CLIENTS:
        found.append(alone(clients))
        print(row_of(found[-1]), flush=True)
    if len(found) > 1:
        slope = np.polyfit(*(np.log10([one[key] for one in found]) for key in ("clients", "round")), 1)[0]
        print(
            f"slope of a round's seconds over clients: {slope:.2f} (0: it costs the same, 1: in proportion)"
        )


def row_of(found: dict[str, Any], name: str = "") -> str:
    """A line of a table in docs/speed.md."""
    return (
        f"| {name or format(found['clients'], ',')} | {found['first']:.2f} | {found['round']:.4f} | {found['end']:.2f} "
        f"| {found['memory']:.0f} | {found['journal']:.2f} | {found['checkpoint']:.2f} | {found['report']:.2f} |"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
