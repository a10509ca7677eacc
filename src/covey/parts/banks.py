"""Which models exist (banks), and which of them a client is sent."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from covey.core import Key, Round, Task, part
from covey.core.needs import GROUPS, MODEL_PER_CLIENT, MODEL_PER_GROUP
from covey.core.shows import NOTHING, OWN_MODEL


@part("bank", "per-client", shows=OWN_MODEL, gives=(MODEL_PER_CLIENT,))
def one_per_client(now: Round) -> Tensor:
    """A model, a row of the bank, for every client ever seen, in order of arrival.

    An unseen client starts from the given model.
    """
    missing = len(now.seen) - len(now.models)
    return torch.cat([now.models, now.fleet.start().expand(missing, -1)]) if missing else now.models


def one_per_parent(now: Round, parents: Sequence[int]) -> Tensor:
    """A row for every group; `parents` says which group each came from.

    A new group starts from its parent's model, or from the given one where it has no parent but itself.
    """
    rows = list(now.models)
    for group in range(len(rows), len(parents)):
        rows.append(rows[parents[group]] if parents[group] < group else now.fleet.start())
    return torch.stack(rows) if len(rows) > len(now.models) else now.models


@part("send", "owner", shows=OWN_MODEL, needs=(MODEL_PER_CLIENT,))
def to_owner(now: Round, ids: Sequence[int]) -> dict[int, Task]:
    """Every client works on the model that it holds: nothing travels."""
    places = {client: place for place, client in enumerate(now.seen)}
    return {
        i: Task(models=now.models[places[i] : places[i] + 1], slots=(places[i],), held=(0,), keep=True)
        for i in ids
        if i in places
    }


class ModelWith:
    """Everybody gets the one model and, as `arg`, what the server keeps under `key`, once it keeps something."""

    key: ClassVar[Key[Tensor]]
    arg: ClassVar[str]

    def __call__(self, now: Round, ids: Sequence[int]) -> dict[int, Task]:
        args = {self.arg: self.key.of(now.memory)} if self.key.name in now.memory else {}
        return dict.fromkeys(ids, Task(models=now.models[:1], slots=(0,), args=args))


@part("send", "group", shows=NOTHING, needs=(MODEL_PER_GROUP, GROUPS))
def to_group(now: Round, ids: Sequence[int]) -> dict[int, Task]:
    """Every client gets the model of its group; a client without a group is not served."""
    groups = {i: now.groups[i] for i in ids if i in now.groups}
    return {i: Task(models=now.models[g : g + 1], slots=(g,)) for i, g in groups.items()}
