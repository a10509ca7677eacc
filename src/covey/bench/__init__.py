"""Where a step's model runs: one bench a worker, never one a client."""

from covey.bench.base import Bench, Fit, Recipe

__all__ = ["Bench", "Fit", "Recipe"]
