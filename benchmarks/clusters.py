"""How `covey` clusters many clients: seconds and memory with portraits given, and agreement with the exact tree.

python -m benchmarks.clusters time [10000 100000 ...]     portraits of MNIST clients, 15 kB each, told over and over
python -m benchmarks.clusters agreement [--clients 5000]  the sample's clusters against those of all pairs of clients

Each line is a process of its own. CPU seconds (user and system). Describing is timed apart, per client.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from covey.core import Round, Step
from covey.core.ledger import Ledger
from covey.core.messages import Reply, Task
from covey.fleet.local import LocalFleet
from covey.methods.covey import grouping
from covey.methods.covey.grouping import ByPortrait
from covey.parts.portraits.portrait import DescribeClasses
from covey.runs.config import fleet_of, resolve
from experiments.origin import processor

DISTINCT = 4000  # clients whose portraits are made; a larger fleet tells them again and again
FLEETS: dict[str, dict[str, Any]] = {
    "rotated": {"partition": {"name": "iid"}, "shift": {"name": "rotation"}},
    "label permutation": {"partition": {"name": "iid"}, "shift": {"name": "label"}},
    "label skew 0.3, rotated": {
        "partition": {"name": "dir-class", "alpha": 0.3, "minimum": 2},
        "shift": {"name": "rotation"},
    },
}


class Told:
    """A fleet that has told everything already: an answer is looked up."""

    simulated = True

    def __init__(self, replies: list[Reply]) -> None:
        self.replies, self.seed, self.ledger = replies, 0, Ledger()

    def ask(self, step: Step, tasks: Mapping[int, Task], **_: Any) -> list[Reply]:  # noqa: ARG002
        some = len(self.replies)
        return [Reply(id=i, size=1, stats=self.replies[i % some].stats) for i in tasks]


def fleet(name: str, clients: int, seed: int) -> LocalFleet:
    data = {"name": "mnist", "clients": clients}
    return fleet_of(resolve({"rounds": 1, "seed": seed, "data": data, **FLEETS[name]}))


def portraits(clients: LocalFleet) -> tuple[list[Reply], float]:
    """What everybody tells, and the CPU seconds that it took per client."""
    begin, found = time.process_time(), []
    clients.begin(1)
    for first in range(0, len(clients.members()), 1000):
        ids = clients.members()[first : first + 1000]
        found += clients.ask(DescribeClasses(), dict.fromkeys(ids, Task()))
    return found, (time.process_time() - begin) / len(found)


def clustered(replies: list[Reply], count: int) -> tuple[dict[int, int], float]:
    """The groups of so many clients, and CPU seconds."""
    import torch

    now = Round(
        number=1,
        fleet=Told(replies),  # type: ignore[arg-type]
        here=range(count),
        models=torch.zeros(0, 1),
        groups={},
        memory={},
        seen=range(count),
        notes={},
    )
    begin = time.process_time()
    groups = ByPortrait()(now)
    return groups, time.process_time() - begin


def agreement(one: Mapping[int, int], other: Mapping[int, int]) -> float:
    """The adjusted Rand index."""
    from sklearn.metrics import adjusted_rand_score

    ids = sorted(set(one) & set(other))
    return float(adjusted_rand_score([one[i] for i in ids], [other[i] for i in ids]))


def time_of(count: int) -> None:
    """A row: clients, seconds, memory, clusters, agreement with the true clusters."""
    clients = fleet("rotated", min(DISTINCT, count), seed=0)
    replies, describing = portraits(clients)
    groups, seconds = clustered(replies, count)
    true = {i: clients.data.shares[i % len(replies)].cluster for i in groups}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"| {count:,} | {seconds:.1f} | {memory:,.0f} | {1000 * describing:.2f} | {len(set(groups.values()))} "
        f"| {agreement(groups, true):.4f} |",
        flush=True,
    )


def agree(name: str, clients: int, seed: int) -> None:
    """A row: the exact tree and the sample's clusters, against each other and against the true clusters."""
    made = fleet(name, clients, seed)
    replies, _ = portraits(made)
    sampled, quick = clustered(replies, len(replies))
    setattr(grouping, "COMPARED", len(replies))  # noqa: B010
    exact, slow = clustered(replies, len(replies))
    true = {i: made.data.shares[i].cluster for i in exact}
    counts = [len(set(groups.values())) for groups in (exact, sampled)]
    print(
        f"| {name} | {seed} | {counts[0]} | {counts[1]} | {agreement(sampled, exact):.4f} "
        f"| {agreement(exact, true):.4f} | {agreement(sampled, true):.4f} | {slow:.1f} | {quick:.1f} |",
        flush=True,
    )


def alone(*words: object) -> None:
    command = [sys.executable, "-m", "benchmarks.clusters", *map(str, words)]
    subprocess.run(command, check=True)


def main(words: list[str]) -> None:
    options = parser().parse_args(words)
    if options.one:
        what, *rest = options.one
        time_of(int(rest[0])) if what == "time" else agree(rest[0], int(rest[1]), int(rest[2]))
        return
    print(f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}")
    if options.what == "time":
        print(
            "| clients | clustering, CPU s | memory, MB | describing, ms per client | clusters | agreement |"
        )
        print("| ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
        for count in options.counts or (10_000, 100_000):
            alone("time", "--one", "time", count)
        return
    print("| fleet | seed | clusters, exact | by sample | index of the two | exact and true ", end="")
    print("| sample and true | exact, CPU s | by sample |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for name in FLEETS:
        for seed in range(options.seeds):
            alone("agreement", "--one", "agreement", name, options.clients, seed)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    found.add_argument("what", choices=("time", "agreement"))
    found.add_argument("counts", nargs="*", type=int)
    found.add_argument("--clients", type=int, default=5000)
    found.add_argument("--seeds", type=int, default=3)
    found.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
