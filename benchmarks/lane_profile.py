"""Where the time of a training step goes, operation by operation: python -m benchmarks.lane_profile [name ...]

Each operation of the program is run alone, many times, on a batch of the size that `benchmarks.lane_speed` has, and its
CPU time taken; the last lines are a whole step by the same clock, what of it lies around the operations, and how fast
this machine multiplies matrices (sgemm of PyTorch, one thread). LANES_ISA=avx2: on narrower vectors.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import torch

import lanes
from benchmarks.lane_speed import CASES, machine
from covey.training.models import build
from lanes.compiled.operations import Operation
from lanes.workspace import Program


def seconds(work: Callable[[], object], least: float = 0.05) -> float:
    """CPU seconds of one go: the shortest of five series of about `least` seconds."""
    work()
    started = time.thread_time()
    work()
    times = max(1, int(least / max(1e-6, time.thread_time() - started)))
    series = []
    for _ in range(5):
        started = time.thread_time()
        for _ in range(times):
            work()
        series.append((time.thread_time() - started) / times)
    return min(series)


def only(program: Program, first: int, end: int, by_block: int, times: int) -> Program:
    """The program with nothing but these operations, done `times` times."""
    phases = np.array([[first, end, by_block]] * times, np.int64).reshape(-1, 3)
    return Program(**{**vars(program), "phases": phases})


class Profiled(lanes.Plan):
    """A plan whose programs can be replaced."""

    def program(self, mode: str, blocks: int, each: str = "alike") -> Program:  # type: ignore[override]
        return PROGRAMS.get("now") or super().program(mode, blocks, each)  # type: ignore[arg-type]


PROGRAMS: dict[str, Program] = {}


def sgemm() -> float:
    """GFLOP/s of one thread."""
    a = torch.randn(1024, 1024)
    return 2 * 1024**3 / seconds(lambda: a @ a) / 1e9


def profile(name: str) -> None:
    case = CASES[name]
    torch.set_num_threads(1)
    model = build(case.model, input_shape=case.shape, outputs=case.outputs, seed=1)
    plan = lanes.plan(model, case.shape, case.objective, "sgd")
    if isinstance(plan, lanes.Refusal):
        raise SystemExit(f"{name}: {plan.reason}")
    plan.compile(print)
    plan = Profiled(**{field.name: getattr(plan, field.name) for field in fields(plan)})
    rng = np.random.default_rng(0)
    x = rng.standard_normal((case.batch, *case.shape), dtype=np.float32)
    y = x if case.objective == "mse" else rng.integers(0, case.outputs, case.batch)
    row = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    row = np.concatenate([row, np.ones(plan.graph.size - len(row), np.float32)])
    batch = [np.arange(case.batch, dtype=np.int64)]

    def step_of(program: Program | None) -> Callable[[], object]:
        PROGRAMS.clear()
        if program is not None:
            PROGRAMS["now"] = program
        trainer, trained = plan.trainer(), row.copy()
        trainer.fit(trained, x, y, batch, lr=0.0)
        return lambda: trainer.fit(trained, x, y, batch, lr=0.0)

    whole = seconds(step_of(None))
    blocks = -(-case.batch // plan.isa.lanes)
    program = lanes.Plan.program(plan, case.objective, blocks)
    times = max(1, min(200, round(0.01 / whole)))
    around = seconds(step_of(only(program, 0, 0, 0, 1)))
    total = 0.0
    print(
        f"\n{name}, batch {case.batch}, {plan.isa.name}\n\n| operation | ms | share |\n| --- | ---: | ---: |"
    )
    for first, end, by_block in program.phases.tolist():
        for i in range(first, end):
            taken = (seconds(step_of(only(program, i, i + 1, by_block, times))) - around) / times
            total += taken
            label = Operation(int(program.code[i, 0])).name.lower().replace("_", " ")
            print(f"| {i} {label} | {1e3 * taken:.4f} | {taken / whole:.1%} |")
    print(f"| sum | {1e3 * total:.4f} | {total / whole:.1%} |")
    print(f"| a call without operations | {1e3 * around:.4f} | {around / whole:.1%} |")
    print(f"| whole step | {1e3 * whole:.4f} | 100% |")


def main(names: list[str]) -> None:
    for name in names or ("W1", "W2", "W3", "cnn-cifar"):
        profile(name)
    print(f"\nsgemm {sgemm():.0f} GFLOP/s on one thread, {machine()}")


if __name__ == "__main__":
    main(sys.argv[1:])
