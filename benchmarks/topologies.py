"""Mixing without a server: memory for 50 nodes with 10 million parameters, seconds per round for 1,000 nodes.

python benchmarks/topologies.py memory
python benchmarks/topologies.py nodes [--nodes 1000] [--rounds 3]
"""

import argparse
import resource
import time
from dataclasses import replace

import numpy as np
import torch

from covey.core import Mixing, Reply
from covey.core.ledger import Cost
from covey.core.round import empty_state, one_round
from covey.data import federate, load
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.parts.mix.apply import apply_mixings
from covey.parts.mix.graphs import adjacency, graph, mixing
from covey.parts.mix.topology import collect
from covey.parts.steps import Train
from covey.settings.catalogue import METHODS
from covey.training.models import build


def peak() -> float:
    """The largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def memory(nodes: int = 50, parameters: int = 10_000_000) -> None:
    """The peak above bank and replies must be one bank."""
    bank, trained = torch.rand(nodes, parameters), torch.rand(nodes, parameters)
    size = bank.nbytes / 1e9
    replies = [Reply(id=i, vector=row) for i, row in enumerate(trained)]
    apply_mixings(
        [Mixing(factors=[np.eye(2)])], torch.ones(2, 10), []
    )  # imports and the allocator's first blocks
    before = peak()
    print(f"{nodes} x {parameters:,}: bank {size:.2f} GB; bank, replies and Python {before:.2f} GB")
    for shape in ("wheel", "full"):
        factors = [collect(nodes, range(nodes)), mixing(adjacency(graph(shape, nodes)))]
        start = time.perf_counter()
        apply_mixings([Mixing(factors=factors)], bank, [reply.vector for reply in replies])
        took = time.perf_counter() - start
        print(
            f"  {shape:5} {took:6.2f} s, peak {peak() - before:+.2f} GB = {(peak() - before) / size:.2f} banks"
        )


def nodes(count: int, rounds: int) -> None:
    """Seconds a round, with training and mixing apart."""
    data = federate(load("mnist"), partition="iid", clients=count, seed=0)
    model = build("cnn-mnist-small", input_shape=(1, 28, 28), outputs=10)
    train = Train(lr=0.01, momentum=0.5, batch=30, batches=1, keep_momentum=True)
    print(f"{count} nodes, {sum(p.numel() for p in model.parameters()):,} parameters, 1 batch of 30 a round")
    for name, backbone in (
        ("decentralized", "ring"),
        ("decentralized", "wheel"),
        ("decentralized", "exponential"),
        ("decentralized", "full"),
        ("hierarchical", "wheel"),
        ("semi-decentralized", "wheel"),
    ):
        settings = {} if name == "decentralized" else {"clusters": count // 10, "cluster_by": "agglomerative"}
        method = METHODS[name](train, backbone=backbone, **settings)
        with_clock = replace(method, mix=Clock(method.mix))
        fleet = LocalFleet(data, model, seed=0, engine=Engine())
        state = one_round(method, empty_state(fleet), fleet)  # start workers, ask for labels
        before = fleet.ledger.total.get("mix.peers", Cost()).messages
        start = time.perf_counter()
        with_clock.mix.seconds = 0.0
        combine = fleet.combine
        fleet.combine = timed(combine, with_clock.mix)  # type: ignore[method-assign]
        for _ in range(rounds):
            state = one_round(with_clock, state, fleet)
        took = (time.perf_counter() - start) / rounds
        sent = (fleet.ledger.total["mix.peers"].messages - before) // rounds
        mixing_took = with_clock.mix.seconds / rounds
        print(
            f"  {name:18} {backbone:11} {took:6.2f} s per round, of it {mixing_took:5.2f} s matrices, mixing and "
            f"counting {sent:,} messages"
        )
        fleet.close()


class Clock:
    """A mix that also measures how long it took."""

    def __init__(self, mix: object) -> None:
        self.mix = mix
        self.seconds = 0.0

    def __call__(self, now: object) -> object:
        start = time.perf_counter()
        made = self.mix(now)  # type: ignore[operator]
        self.seconds += time.perf_counter() - start
        return made


def timed(combine: object, clock: Clock) -> object:
    def measured(*arguments: object) -> object:
        start = time.perf_counter()
        rows = combine(*arguments)  # type: ignore[operator]
        clock.seconds += time.perf_counter() - start
        return rows

    return measured


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["memory", "nodes"])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.what == "memory":
        memory()
    else:
        nodes(given.nodes, given.rounds)
