"""A round that lives without clients, and a small fleet of digits."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from covey.core.round import Reply, Round, stream
from covey.data import federate, load
from covey.fleet.engine import Engine
from covey.fleet.local import LocalFleet
from covey.training.models import build
from covey.training.rows import Layout


class FakeFleet(SimpleNamespace):
    """Answers from a table `answers[id] -> Reply`; counts who was asked."""

    def ask(self, step: Any, tasks: Mapping[int, Any], **_: Any) -> list[Reply]:
        self.asked.append(sorted(tasks))
        return [self.answers[i] for i in sorted(tasks) if i in self.answers]

    def members(self) -> list[int]:
        return list(range(self.size))


def make_round(
    model: Sequence[float] = (0.0,),
    *,
    replies: Mapping[int, tuple[Sequence[float], int]] | None = None,
    groups: Mapping[int, int] | None = None,
    memory: Mapping[str, Any] | None = None,
    here: Sequence[int] = (),
    answers: Mapping[int, Reply] | None = None,
    number: int = 1,
    trainable: int | None = None,
    stats: Mapping[int, Mapping[str, Any]] | None = None,
) -> Round:
    """A round of one global model, with replies given as `id: (row, samples)`."""
    fleet = FakeFleet(
        seed=0,
        layout=Layout(
            names=("w",),
            shapes=((len(model),),),
            trainable=len(model) if trainable is None else trainable,
            size=len(model),
        ),
        answers=answers or {},
        asked=[],
        size=max(len(here), 1),
    )
    now = Round(
        number=number,
        fleet=fleet,  # type: ignore[arg-type]
        here=list(here),
        models=torch.tensor([list(model)], dtype=torch.float32),
        groups=dict(groups or {}),
        memory=dict(memory or {}),
        seen=tuple(here),
        notes={},
    )
    now.replies = [
        Reply(id=i, vector=torch.tensor(row), size=size, stats=dict((stats or {}).get(i, {})))
        for i, (row, size) in sorted((replies or {}).items())
    ]
    now.chosen = [reply.id for reply in now.replies]
    return now


@pytest.fixture
def a_round() -> Callable[..., Round]:
    return make_round


@pytest.fixture
def digits_fleet() -> Callable[..., LocalFleet]:
    """`digits_fleet(clients=20, alpha=0.1)`: a new fleet of digits with a small network, one process."""

    def make(*, clients: int = 20, alpha: float = 0.1, seed: int = 0, **settings: Any) -> LocalFleet:
        data = federate(load("digits"), partition="dir-class", clients=clients, seed=seed, alpha=alpha)
        model = build("mlp", input_shape=tuple(data.dataset.x.shape[1:]), outputs=10, seed=0)
        return LocalFleet(data, model, seed=seed, engine=Engine(debug=True), **settings)

    return make


@pytest.fixture
def rng() -> Any:
    return stream(0, "test")
