"""Lanes: trains small models on a CPU many times faster than PyTorch, one sample per vector lane."""

from lanes.compiled.isa import LanesError, host
from lanes.compiled.library import ensure_built, object_files
from lanes.plan import Objective, Optimiser, Plan, Refusal, plan
from lanes.trainer import Batches, Trainer, Work

__all__ = [
    "Batches",
    "LanesError",
    "Objective",
    "Optimiser",
    "Plan",
    "Refusal",
    "Trainer",
    "Work",
    "ensure_built",
    "host",
    "object_files",
    "plan",
]
