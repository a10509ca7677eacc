"""What no engine can be faster than without doing less arithmetic: a round's operations at the speed of sgemm.

python -m benchmarks.bounds
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import raw
from benchmarks.workloads import WORKLOADS, Workload

SIDE = 1024  # of the matrices; three of them fit into the second cache


def gflops() -> float:
    """Billions of operations per second of one core, in the best of some products of square matrices; CPU time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    a, b = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
    best = np.inf
    for _ in range(20):
        start = time.thread_time()
        torch.mm(a, b)
        best = min(best, time.thread_time() - start)
    torch.set_num_threads(before)
    return 2 * SIDE**3 / best / 1e9


def operations(model: nn.Module, sample: Tensor) -> int:
    """Of training on one sample, with direct convolutions: forward, weights' gradient, and inputs' but the first."""
    found: list[int] = []

    def count(layer: nn.Module, _: tuple[Tensor, ...], out: Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        places = out[0].numel() // weight.shape[0]
        found.append(2 * weight.numel() * places)

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    model(sample)
    for hook in hooks:
        hook.remove()
    return 3 * sum(found) - found[0]


def seconds(workload: Workload, speed: float) -> float:
    """A round at `speed` billions of operations per second."""
    samples = workload.per_round * (workload.least + workload.most) / 2
    return samples * operations(raw.model_of(workload), torch.rand(1, 1, 28, 28)) / speed / 1e9


def told(workload: Workload, speed: float) -> str:
    """The bound of a workload as a sentence."""
    least = seconds(workload, speed)
    return (
        f"{workload.name}: its arithmetic at the speed of sgemm ({speed:.0f} GFLOP/s on one core) "
        f"takes {least:.3f} CPU s, on two cores at least {least / 2:.3f} s by the clock"
    )


def main() -> None:
    speed = gflops()
    for workload in WORKLOADS.values():
        print(told(workload, speed))


if __name__ == "__main__":
    main()
