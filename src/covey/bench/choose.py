"""Which bench runs a model: decided once, before the first task, and never changed in a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from covey.bench.base import Bench
from covey.bench.torch import TorchBench
from covey.model import BufferPolicy
from covey.objective import Objective


def choose_bench(
    model: nn.Module,
    objective: Objective,
    input_shape: tuple[int, ...],  # noqa: ARG001
    *,
    buffers: BufferPolicy = "average",
    lanes: bool = True,
    optimiser: str = "sgd",  # noqa: ARG001
    device: str = "auto",
    say: Callable[[str], None] | None = None,  # noqa: ARG001
) -> tuple[Callable[[], Bench], dict[str, Any]]:
    """How to make a bench (called once a worker), and what to write about it into the run folder."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    why = "engine.lanes is false" if not lanes else f"the model runs on {device}" if device != "cpu" else ""
    make = partial(TorchBench, model, objective, buffers=buffers, device=device, why=why)
    return make, {"trainer": "torch", "device": device, "why": why}
