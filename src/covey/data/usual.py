"""What a data set means where a run says nothing: who its clients are, what is learned, which files it is read from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from covey.data.types import Dataset
from covey.errors import UserError

# The gradient of a squared error has no bound: a client whose inputs are ten deviations out (one large city among small
# ones) diverges at learning rates that suit all others. With deviations as targets a length of 1 ends that.
NUMBERS_CLIP = 1.0


@dataclass(frozen=True, kw_only=True)
class Usual:
    """What a run does with a data set unless it says otherwise; None: what it does with any data set.

    partition: how the samples are partitioned. clients: among how many. objective: what is trained for. clip: the
    longest gradient in training.
    """

    partition: str | None = None
    clients: int | None = None
    objective: str | None = None
    clip: float | None = None


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a loader says of its data before it loads them; functions take the loader's settings.

    usual: who the clients are; None: nobody. files: what the run folder keeps the hash of.
    """

    usual: Usual | Callable[..., Usual] | None = None
    files: Callable[..., list[Path]] | None = None


_DECLARED: dict[Any, Declared] = {}
NOTHING = Declared()


def declare(
    loader: Callable[..., Dataset],
    *,
    usual: Usual | Callable[..., Usual] | None = None,
    files: Callable[..., list[Path]] | None = None,
) -> None:
    """Says of a loader what its data usually mean (whatever its settings, or by them), and which files they are."""
    _DECLARED[loader] = Declared(usual=usual, files=files)


def declared(loader: Any) -> Declared:
    """What a loader said of its data."""
    return _DECLARED.get(loader, NOTHING)


def usual_for(dataset: Dataset, partition: str | None = None, minimum: int = 1) -> Usual:
    """What a data set that is there says itself: its clients are those of the grouping that it names.

    `partition`: what the run says. `minimum`: only clients with that many training samples count. Targets, which have
    no classes to partition by, are split evenly.
    """
    if dataset.clients_by:
        sizes = np.bincount(dataset.natural[dataset.clients_by][dataset.train])
        return Usual(partition="natural", clients=max(1, int((sizes >= minimum).sum())))
    if len(dataset.natural) > 1 and partition is None:
        raise UserError(
            f"{dataset.name} has the groupings {', '.join(sorted(dataset.natural))}, and nothing says which are "
            'the clients; say it (covey.from_tensors(..., client="NAME")), or how to split the samples (partition)'
        )
    return Usual() if dataset.classes else Usual(partition="iid")
