"""Where a step's model runs: one bench per worker, never one per client."""

from covey.bench.base import Bench, Fit, Recipe

__all__ = ["Bench", "Fit", "Recipe"]
