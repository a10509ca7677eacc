"""What a client may be asked."""

from covey.steps.evaluate import Evaluate
from covey.steps.train import Train, best_row, local_fit

__all__ = ["Evaluate", "Train", "best_row", "local_fit"]
