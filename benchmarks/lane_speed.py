"""CPU time of lanes against `nn.Module` and `torch.optim`, model by model: python -m benchmarks.lane_speed [name ...]

Both run turn by turn on one thread, every model in a fresh process; CPU time of that thread is counted, so that
other work on the machine disturbs little. Memory is what an epoch needs at its peak beside the data and the model.
LANES_ISA=avx2 holds PyTorch to AVX2, too. `--json FILE` keeps the numbers, `--repeats N` takes the median of
more turns.
"""

import argparse
import copy
import json
import multiprocessing as mp
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import lanes
from covey.training.models import build
from covey.training.rows import read_row


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, its input and the batch size it is trained with."""

    model: str
    shape: tuple[int, ...]
    batch: int
    outputs: int = 10
    samples: int = 600
    objective: lanes.Objective = "cross-entropy"


DIGITS, COLOUR = (1, 28, 28), (3, 32, 32)
CASES = {
    "W1": Case(model="lenet5", shape=DIGITS, batch=32),
    "W2": Case(model="cnn-mnist", shape=DIGITS, batch=64),
    "W3": Case(model="lenet5", shape=DIGITS, batch=20),
    "lenet-colour": Case(model="lenet5", shape=COLOUR, batch=32),
    "lenet-tanh": Case(model="lenet-tanh", shape=DIGITS, batch=32),
    "cnn-mnist-small": Case(model="cnn-mnist-small", shape=DIGITS, batch=64),
    "cnn-cifar": Case(model="cnn-cifar", shape=COLOUR, batch=64, samples=256),
    "cnn-emnist": Case(model="cnn-emnist", shape=DIGITS, batch=64, outputs=62, samples=256),
    "cnn-femnist": Case(model="cnn-femnist", shape=DIGITS, batch=64, outputs=62, samples=256),
    "mlp": Case(model="mlp", shape=DIGITS, batch=10),
    "softmax": Case(model="softmax", shape=DIGITS, batch=10),
    "ae-fc": Case(model="ae-fc", shape=DIGITS, batch=32, objective="mse"),
    "ae-conv": Case(model="ae-conv", shape=COLOUR, batch=32, samples=320, objective="mse"),
    "cnn-fashion": Case(model="cnn-fashion", shape=DIGITS, batch=64),
    "vgg11": Case(model="vgg11", shape=COLOUR, batch=32, samples=64),
    "resnet18": Case(model="resnet18", shape=COLOUR, batch=32, samples=64),
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """Milliseconds of CPU a training step, and microseconds a sample forward."""

    parameters: int
    batch: int
    torch_step: float
    lanes_step: float
    torch_forward: float
    lanes_forward: float
    torch_memory: float  # MB
    lanes_memory: float
    gradient_error: float  # relative, of one step, against PyTorch in float32

    @property
    def speed(self) -> float:
        return self.torch_step / self.lanes_step


def cpu_time(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def peak_memory(work: Callable[[], object]) -> float:
    """MB by which this process grows at most while it works (Linux counts the peak anew when asked to)."""

    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    work()
    return (status("VmHWM") - before) / 1024


def measure(case: Case, repeats: int) -> Result:
    torch.set_num_threads(1)
    model = build(case.model, input_shape=case.shape, outputs=case.outputs, seed=1)
    plan = lanes.plan(model, case.shape, case.objective, "sgd")
    if isinstance(plan, lanes.Refusal):
        raise SystemExit(f"{case.model}: {plan.reason}")
    plan.compile(print)
    trainer = plan.trainer()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((case.samples, *case.shape), dtype=np.float32)
    y = x if case.objective == "mse" else rng.integers(0, case.outputs, case.samples)
    order = rng.permutation(case.samples)
    batches = [order[i : i + case.batch] for i in range(0, case.samples, case.batch)]
    row = read_row(model).numpy()
    untrained = copy.deepcopy(model)
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    index = [torch.from_numpy(batch) for batch in batches]
    loss_of = F.mse_loss if case.objective == "mse" else F.cross_entropy

    def torch_epoch() -> None:
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
        model.train()
        for batch in index:
            optimiser.zero_grad()
            loss_of(model(tx[batch]), ty[batch]).backward()
            optimiser.step()

    def torch_forward() -> None:
        model.eval()
        with torch.no_grad():
            model(tx)

    works: list[Callable[[], object]] = [
        lambda: trainer.fit(row.copy(), x, y, batches, lr=0.01),
        torch_epoch,
        lambda: trainer.forward(row, x),
        torch_forward,
    ]
    memory = [peak_memory(work) for work in works]  # caches, page tables and the clock's speed settle, too
    times = np.array([[cpu_time(work) for work in works] for _ in range(repeats)])
    medians = np.median(times, axis=0)
    return Result(
        parameters=plan.parameters,
        batch=case.batch,
        lanes_step=float(medians[0]) / len(batches) * 1e3,
        torch_step=float(medians[1]) / len(batches) * 1e3,
        lanes_forward=float(medians[2]) / case.samples * 1e6,
        torch_forward=float(medians[3]) / case.samples * 1e6,
        lanes_memory=memory[0],
        torch_memory=memory[1],
        gradient_error=gradient_error(untrained, trainer, row, x, y, batches[0], loss_of),
    )


def gradient_error(
    model: nn.Module,
    trainer: lanes.Trainer,
    row: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    batch: np.ndarray,
    loss_of: Callable[..., torch.Tensor],
) -> float:
    """Of one step without dropout, where there is none."""
    if any(isinstance(m, nn.Dropout | nn.Dropout2d) for m in model.modules()):
        return float("nan")
    model.zero_grad()
    loss_of(model(torch.from_numpy(x[batch])), torch.from_numpy(y[batch])).backward()
    exact = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
    found = np.zeros_like(exact)
    trainer.fit(row.copy(), x, y, [batch], lr=0.0, momentum=0.9, velocity=found)
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def table(results: dict[str, Result]) -> str:
    lines = [
        "| model | parameters | batch | PyTorch ms/step | lanes ms/step | speed | forward "
        "| PyTorch MB | lanes MB | gradient differs by |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, r in results.items():
        lines.append(
            f"| {name} | {r.parameters:,} | {r.batch} | {r.torch_step:.2f} | {r.lanes_step:.3f} | **{r.speed:.1f}x** "
            f"| {r.torch_forward / r.lanes_forward:.1f}x | {r.torch_memory:.0f} | {r.lanes_memory:.0f} "
            f"| {r.gradient_error:.0e} |"
        )
    return "\n".join(lines)


def machine() -> str:
    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[], help=", ".join(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if os.environ.get("LANES_ISA") == "avx2":  # as on a processor that has nothing wider
        os.environ |= {
            "ATEN_CPU_CAPABILITY": "avx2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        }
    results: dict[str, Result] = {}
    with ProcessPoolExecutor(1, mp.get_context("spawn"), max_tasks_per_child=1) as pool:
        for name in options.names or CASES:
            results[name] = pool.submit(measure, CASES[name], options.repeats).result()
            print(name, f"{results[name].speed:.2f}x", flush=True)
    print(table(results))
    print(machine())
    if options.json:
        record = {"machine": machine(), "cases": {name: asdict(result) for name, result in results.items()}}
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
