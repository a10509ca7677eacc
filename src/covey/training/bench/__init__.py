"""Where a step's model runs: one bench per worker, never one per client."""

from covey.training.bench.base import Bench, Fit, LossFunction, Recipe

__all__ = ["Bench", "Fit", "LossFunction", "Recipe"]
