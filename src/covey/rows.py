"""Which models exist (banks), and which of them a client is sent."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from covey.core import Round, Task, one_model, to_everybody

__all__ = ["one_model", "one_per_client", "one_per_group", "to_everybody", "to_group", "to_owner"]


def one_per_client(now: Round) -> Tensor:
    """A row for every client ever seen, in order of arrival; a newcomer starts from the given model."""
    missing = len(now.seen) - len(now.models)
    return torch.cat([now.models, now.fleet.start().expand(missing, -1)]) if missing else now.models


def one_per_group(now: Round) -> Tensor:
    """A row for every group; a new group starts from the given model."""
    missing = max(now.groups.values(), default=0) + 1 - len(now.models)
    return torch.cat([now.models, now.fleet.start().expand(missing, -1)]) if missing > 0 else now.models


def to_owner(now: Round, ids: Sequence[int]) -> dict[int, Task]:
    """Everybody works on the row that lies with him: nothing travels."""
    row_of = {client: row for row, client in enumerate(now.seen)}
    return {
        i: Task(models=now.models[row_of[i] : row_of[i] + 1], slots=(row_of[i],), held=(0,), keep=True)
        for i in ids
        if i in row_of
    }


def to_group(now: Round, ids: Sequence[int]) -> dict[int, Task]:
    """Everybody gets the row of his group; who has no group yet is not served."""
    groups = {i: now.groups[i] for i in ids if i in now.groups}
    return {i: Task(models=now.models[g : g + 1], slots=(g,)) for i, g in groups.items()}
