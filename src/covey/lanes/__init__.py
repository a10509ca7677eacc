"""Lanes: trains small models on a CPU many times faster than PyTorch, one sample a vector lane."""

from covey.lanes.plan import Objective, Optimiser, Plan, Refusal, plan
from covey.lanes.trainer import Batches, Trainer

__all__ = ["Batches", "Objective", "Optimiser", "Plan", "Refusal", "Trainer", "plan"]
