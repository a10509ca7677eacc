"""Which bench runs a model: decided once, before the first task, and never changed in a run."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from covey.errors import UserError
from covey.training.bench.base import Bench, Recipe
from covey.training.bench.cohort import Stacking
from covey.training.bench.lanes_bench import LanesBench, Refusal, plans_for
from covey.training.bench.torch_bench import TorchBench
from covey.training.objective import Objective
from covey.training.rows import BufferPolicy, Layout

# Below this many parameters lanes always win by far; above, one timed batch decides.
SURE_BELOW = 300_000
TIMED_BATCH = 32


def choose_bench(
    model: nn.Module,
    objective: Objective,
    input_shape: tuple[int, ...],
    *,
    buffers: BufferPolicy = "average",
    lanes: bool | None = None,
    device: str = "auto",
    stacking: Stacking | None = None,
    say: Callable[[str], None] | None = None,
) -> tuple[Callable[[], Bench], dict[str, Any]]:
    """How to make a bench (called once per worker), and what to write about it into the run folder.

    `lanes` None means: use them where they support the model and are faster; True: wherever they support it.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    on_torch = partial(TorchBench, model, objective, buffers=buffers, device=device, stacking=stacking)

    def torch_because(why: str, **more: Any) -> tuple[Callable[[], Bench], dict[str, Any]]:
        return partial(on_torch, why=why), {"trainer": "torch", "device": device, "why": why, **more}

    if lanes is False:
        return torch_because("engine.lanes is false")
    if device != "cpu":
        return torch_because(f"the model runs on {device}")
    plans = plans_for(model, input_shape, objective, say)
    if isinstance(plans, Refusal):
        return torch_because(f"not supported by lanes: {plans.reason}")
    on_lanes = partial(LanesBench, plans, Layout.of(model, buffers), objective, model)
    info = {**on_lanes().info(), "trainer": "lanes", "device": "cpu", "why": "supported"}
    if lanes is None and Layout.of(model).trainable > SURE_BELOW:
        fast, slow = (batch_seconds(make(), input_shape, objective) for make in (on_lanes, on_torch))
        timed = {"lanes_seconds": round(fast, 5), "torch_seconds": round(slow, 5)}
        if slow < fast:
            return torch_because("one timed batch was faster", **timed)
        info.update(timed, why="one timed batch was faster")
    return on_lanes, info


def check_device(device: str) -> None:
    """Refuses a device that PyTorch does not have here."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"engine.device is {device!r}; allowed: auto, cpu, or another device of this machine ({reason})"
        ) from error


def batch_seconds(bench: Bench, input_shape: tuple[int, ...], objective: Objective) -> float:
    """The shortest of three timed batches (after one for warming up), in CPU seconds of this thread."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((TIMED_BATCH, *input_shape), dtype=np.float32))
    row = torch.zeros(bench.layout.size)
    row[: bench.layout.trainable] = torch.from_numpy(
        rng.standard_normal(bench.layout.trainable, dtype=np.float32) * 0.01
    )
    outputs = bench.forward(row, x)
    y = torch.zeros(TIMED_BATCH, dtype=torch.long) if objective.kernel == "cross-entropy" else outputs
    times = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(4):
        start = time.thread_time()
        bench.fit(row, x, y, [np.arange(TIMED_BATCH)], Recipe(lr=0.01), seed=0)
        times.append(time.thread_time() - start)
    torch.set_num_threads(threads)
    return min(times[1:])
