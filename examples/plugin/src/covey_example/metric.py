"""A metric of one's own: the class that fares worst."""

from __future__ import annotations

from sklearn.metrics import recall_score
from torch import Tensor

from covey import metric


@metric(name="worst-recall", higher_is_better=True, share=True)
def worst_recall(outputs: Tensor, target: Tensor) -> float:
    """The lowest recall of the classes that are there."""
    there = target.unique().numpy()
    return float(recall_score(target.numpy(), outputs.argmax(1).numpy(), labels=there, average=None).min())
