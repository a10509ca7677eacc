"""Lanes: trains small models on a CPU many times faster than PyTorch, one sample a vector lane."""

from covey.lanes.plan import Plan, Refusal, plan
from covey.lanes.trainer import Batches, Trainer

__all__ = ["Batches", "Plan", "Refusal", "Trainer", "plan"]
