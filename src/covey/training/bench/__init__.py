"""Where a step's model runs: one bench per worker, never one per client."""

from covey.training.bench.base import Bench, Fit, Loss, Recipe

__all__ = ["Bench", "Fit", "Loss", "Recipe"]
