"""Larger models: Covey's PyTorch path against a raw loop: python -m benchmarks.large [--models vit ...]

A client's local epoch of eight batches: the model is loaded, trained and read out. Both are processes of their own with
one thread, which take turns. With `--forward`, what it takes to measure as many samples.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import raw
from benchmarks.__main__ import measure
from benchmarks.peers.environments import ONE_THREAD
from benchmarks.workloads import Workload
from covey.training.bench.base import Recipe
from covey.training.bench.torch_bench import TorchBench
from covey.training.models import build
from covey.training.objective import Classification
from covey.training.rows import read_row

BATCHES = 8  # of an epoch


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model of the registry, its input and its batch."""

    model: str
    shape: tuple[int, ...]
    batch: int = 32
    settings: dict[str, Any] = field(default_factory=dict)


CASES = {
    "vit": Case(model="vit", shape=(1, 28, 28)),
    "vit, wide": Case(model="vit", shape=(3, 32, 32), settings={"width": 192, "heads": 3}),
    "decoder": Case(model="decoder", shape=(32,), settings={"vocabulary": 64}),
    "resnet18": Case(model="resnet18", shape=(3, 32, 32)),
    "cnn-cifar": Case(model="cnn-cifar", shape=(3, 32, 32), batch=64),
    "lenet5": Case(model="lenet5", shape=(1, 28, 28)),
}


def model_of(case: Case) -> nn.Module:
    return build(case.model, input_shape=case.shape, outputs=10, seed=1, **case.settings)


def data_of(case: Case) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    count = BATCHES * case.batch
    tokens = case.model == "decoder"
    x = rng.integers(0, 64, (count, *case.shape)) if tokens else rng.random((count, *case.shape), np.float32)
    return torch.from_numpy(x), torch.from_numpy(rng.integers(0, 10, count))


def raw_loop(case: Case, *, forward: bool) -> Callable[[int], object]:
    """What anybody would write by hand (`benchmarks.raw`)."""
    model, (x, y) = model_of(case), data_of(case)
    if forward:
        return lambda _: raw.accuracy(model, x, y)
    workload = Workload(
        name=case.model, clients=1, least=0, most=0, model=case.model, batch=case.batch, per_round=1
    )
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return lambda seed: raw.train(model, start, x, y, workload, seed)


def bench_loop(case: Case, *, forward: bool) -> Callable[[int], object]:
    """The same on Covey's PyTorch bench."""
    model, (x, y) = model_of(case), data_of(case)
    bench, row = TorchBench(model, Classification()), read_row(model)
    if forward:
        return lambda _: (bench.forward(row, x).argmax(1) == y).sum()

    def epoch(seed: int) -> object:
        order = np.random.default_rng(seed).permutation(len(y))
        return bench.fit(row, x, y, np.split(order, BATCHES), Recipe(lr=0.01), seed=seed)

    return epoch


LOOPS = {"raw loop": raw_loop, "Covey, PyTorch": bench_loop}


def one(name: str, model: str, forward: bool) -> None:
    """A loop in this process: reads a line, answers with what an epoch took."""
    torch.set_num_threads(1)
    epoch = LOOPS[name](CASES[model], forward=forward)
    for line in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        epoch(int(line))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"cpu": cpu, "wall": wall, "memory": memory}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--forward", action="store_true")
    parser.add_argument("--one", choices=list(LOOPS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one(options.one, options.models[0], options.forward)
    print(
        f"load {os.getloadavg()[0]:.0f}, medians of {options.rounds}, one thread, milliseconds of CPU per batch\n"
    )
    print("| model | parameters | raw loop | Covey, PyTorch | ratio | by the clock |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for model in options.models:
        more = ["--models", model, *(["--forward"] if options.forward else [])]
        commands = {
            name: ["env", ONE_THREAD, sys.executable, "-m", "benchmarks.large", "--one", name, *more]
            for name in LOOPS
        }
        with tempfile.TemporaryDirectory() as logs:
            theirs, ours = measure(commands, options.rounds, Path(logs)).values()
        size = sum(p.numel() for p in model_of(CASES[model]).parameters())
        each = [1e3 * found["cpu"] / BATCHES for found in (theirs, ours)]
        ratios = [ours[key] / theirs[key] for key in ("cpu", "wall")]
        shown = " | ".join(f"{number:.2f}" for number in (*each, *ratios))
        print(f"| {model} | {size:,} | {shown} |", flush=True)
    return None


if __name__ == "__main__":
    main()
