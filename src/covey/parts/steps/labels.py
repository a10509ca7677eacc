"""A client's label histogram: the least that tells which clients are alike."""

import numpy as np
from numpy.typing import NDArray

from covey.core import Client, Known, Reply, Stat, Step, Task, step
from covey.errors import UserError


@step(kind="query.labels", of_labels=True)
class CountLabels(Step):
    """How many training samples of each class the client holds: `stats["labels"]`, one number per class."""

    def __call__(self, client: Client, task: Task) -> Reply:  # noqa: ARG002
        classes = len(client.train.dataset.classes)
        if not classes:
            raise UserError(f"the data set {client.train.dataset.name!r} has no classes to group clients by")
        counts = label_counts(client.train.labels(), labels=classes, who=f"client {client.id}")
        return Reply(id=client.id, size=len(client.train), stats={"labels": counts})

    def expects(self, known: Known) -> dict[str, Stat]:
        """As many counts as the server knows classes, which add up to no more than the client's samples."""
        return {"labels": Stat(low=0.0, shape=(known.classes,), total=(1.0, known.train))}


def label_counts(y: NDArray[np.generic], *, labels: int, who: str = "the client") -> NDArray[np.float64]:
    """How many samples of each label of the agreed space 0..labels-1 there are."""
    return np.bincount(checked_labels(y, labels, who), minlength=labels).astype(np.float64)


def checked_labels(y: NDArray[np.generic], labels: int, who: str) -> NDArray[np.int64]:
    if len(y) == 0:
        raise UserError(f"{who} has no training data, so it has no summary.")
    if not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"{who} has targets of type {y.dtype}; a summary by label needs whole-number labels.")
    known = y.astype(np.int64)
    wrong = known[(known < 0) | (known >= labels)]
    if len(wrong):
        raise UserError(f"{who} has the label {wrong[0]}, outside the agreed label space 0 to {labels - 1}.")
    return known
