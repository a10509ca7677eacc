"""What CAFA adds: the sweep over k for fleets of all sizes, and the cross-evaluation's share of a round.

Usage: python benchmarks/cafa.py [sweep|cross]
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from covey.core import Reply, Step, Task
from covey.core.round import empty_state, one_round
from covey.data.partitions import PARTITIONS
from covey.data.types import ClientShare, Dataset, Federation, Samples
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.methods.cafa import cafa
from covey.parts.group import silhouette
from covey.parts.steps import Train
from covey.parts.steps.evaluate import Evaluate
from covey.training.models import build

FLEETS = (20, 60, 200, 1_000, 5_000)
CLIENTS, SAMPLES, ROUNDS = 20, 1_000, 3


def shares(clients: int) -> np.ndarray:
    """A quarter of the clients IID, the others with one or two of ten labels, 100 samples each."""
    labels = np.arange(100 * clients) % 10
    parts = PARTITIONS["iid-of-n"](
        labels, clients=clients, rng=np.random.default_rng(0), iid_clients=clients // 4, published=True
    )
    counts = np.stack([np.bincount(labels[part], minlength=10) for part in parts])
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def sweep() -> None:
    """Seconds of the sweep; for 1,000 clients also with every k, as up to 200."""
    print(
        f"{'clients':>8}{'k tried':>9}{'best k':>8}{'silhouette':>12}{'CPU s':>8}{'wall s':>8}{'peak MB':>9}"
    )
    for clients in FLEETS:
        usual = silhouette.EVERY_K
        for every in (usual, 10**9) if clients == 1_000 else (usual,):
            silhouette.EVERY_K = every
            vectors = shares(clients)
            wall, cpu = time.perf_counter(), time.process_time()
            found = silhouette.cluster(vectors, np.random.default_rng(1))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{clients:>8,}{len(found.k):>9,}{found.chosen:>8,}{max(found.score):>12.4f}{cpu:>8.1f}"
                f"{wall:>8.1f}{peak:>9,.0f}{'  every k' if every > usual else ''}",
                flush=True,
            )
        silhouette.EVERY_K = usual


class Timed(LocalFleet):
    """A fleet that adds up the CPU seconds of every step kind."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.spent: dict[str, float] = {}

    def ask(self, step: Step, tasks: Mapping[int, Task], **settings: Any) -> list[Reply]:
        start = time.process_time()
        replies = super().ask(step, tasks, **settings)
        self.spent[step.kind] = self.spent.get(step.kind, 0.0) + time.process_time() - start
        return replies


def pictures() -> Federation:
    """20 clients with 1,000 pictures of noise each."""
    rng = np.random.default_rng(7)
    total = CLIENTS * SAMPLES
    data = Dataset(
        name="noise",
        x=torch.from_numpy(rng.integers(0, 256, (total, 3, 32, 32), dtype=np.uint8)),
        y=torch.from_numpy(rng.integers(0, 10, total)),
        train=np.arange(total),
        test=np.arange(100),
        classes=tuple("0123456789"),
    )
    test = Samples(data, data.test)
    places = np.arange(total).reshape(CLIENTS, SAMPLES)
    return Federation(data, tuple(ClientShare(Samples(data, place), test) for place in places), test)


def one_by_one(fleet: Timed, rows: torch.Tensor, ids: list[int]) -> float:
    """CPU seconds of the same K x K evaluations asked one at a time."""
    start = time.process_time()
    for row in rows:
        fleet.ask(
            Evaluate(split="validation", holdout=0.2), dict.fromkeys(ids, Task(models=row[None], slots=(0,)))
        )
    return time.process_time() - start


def cross() -> None:
    """The share of a round's CPU time that goes into scoring each other's models: 6 clients, one core."""
    print(
        f"{'model':<12}{'trainer':<9}{'epochs':>7}{'training s':>12}{'cross s':>9}{'share':>8}{'one by one s':>14}"
    )
    data = pictures()
    for name, epochs in (("lenet5", 5), ("lenet5", 1), ("cnn-cifar", 5)):
        model = build(name, input_shape=(3, 32, 32), outputs=10)
        fleet = Timed(data, model, engine=Engine(mode="serial", workers=1))
        method = cafa(Train(epochs=epochs, batch=32, lr=0.01, holdout=0.2), clusters=3)
        state = one_round(method, empty_state(fleet), fleet)  # compiles and warms up
        fleet.spent.clear()
        for _ in range(ROUNDS):
            state = one_round(method, state, fleet)
        training, crossed = (fleet.spent[kind] / ROUNDS for kind in ("train.sgd", "evaluate.cross"))
        alone = one_by_one(fleet, state.models.expand(6, -1).clone(), list(range(6)))
        print(
            f"{name:<12}{fleet.info['trainer']:<9}{epochs:>7}{training:>12.2f}{crossed:>9.2f}"
            f"{crossed / (training + crossed):>8.1%}{alone:>14.2f}",
            flush=True,
        )


def main() -> None:
    parts: dict[str, Callable[[], None]] = {"sweep": sweep, "cross": cross}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
