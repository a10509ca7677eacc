"""What a client may be asked."""

from covey.parts.steps.evaluate import Evaluate
from covey.parts.steps.train import Train, best_row, local_fit

__all__ = ["Evaluate", "Train", "best_row", "local_fit"]
