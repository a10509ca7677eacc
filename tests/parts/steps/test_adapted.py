"""Training before use is done once in a round, whoever asks for the row."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import pytest
import torch

from covey.core.round import Task
from covey.fleet.local import LocalFleet
from covey.fleet.used import rows_in_use
from covey.parts.steps import Train, adapted
from covey.parts.steps.judged import EvaluateAdapted
from covey.parts.steps.served import Serving
from covey.testing import small_fleet

TRAIN = Train(lr=0.1)


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clients that trained, one after the other."""
    clients: list[int] = []
    fit = adapted.local_fit
    monkeypatch.setattr(adapted, "_ROWS", WeakKeyDictionary())
    monkeypatch.setattr(adapted, "local_fit", lambda t, c, row: clients.append(c.id) or fit(t, c, row))
    return clients


def measured(fleet: LocalFleet, row: torch.Tensor) -> dict[int, Task]:
    tasks = {i: Task(models=row[None], slots=(0,)) for i in fleet.members()}
    fleet.ask(EvaluateAdapted(train=TRAIN), tasks, measure=True)
    return tasks


def test_the_rows_that_are_stored_are_those_that_were_measured(worked: list[int]) -> None:
    fleet = small_fleet()
    fleet.begin(1)
    tasks = measured(fleet, fleet.start())
    clients = sorted(worked)
    taken = list(rows_in_use(fleet, Serving(adapt=TRAIN), tasks, 1))
    assert len(taken) == len(clients)
    assert sorted(worked) == clients, "nobody trained again"
    adapted._ROWS.clear()
    for one, other in zip(taken, rows_in_use(fleet, Serving(adapt=TRAIN), tasks, 1), strict=True):
        assert torch.equal(one.row, other.row), "bit-identical to an uninterrupted run"


def test_another_round_model_or_training_is_another_row(worked: list[int]) -> None:
    fleet = small_fleet()
    fleet.begin(1)
    tasks = measured(fleet, fleet.start())
    count = len(worked)
    list(rows_in_use(fleet, Serving(adapt=Train(lr=0.2)), tasks, 1))
    list(rows_in_use(fleet, Serving(adapt=TRAIN), tasks, 2))
    fleet.begin(2)
    measured(fleet, fleet.start() + 1)
    assert len(worked) == 4 * count
    assert all(key[0] == 2 for rows in adapted._ROWS.values() for key in rows), "one round is remembered"


def test_so_many_bytes_are_remembered(worked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = small_fleet()
    monkeypatch.setattr(adapted, "MOST_BYTES", 3 * (fleet.start().nbytes + adapted.KEY_BYTES))
    fleet.begin(1)
    measured(fleet, fleet.start())
    assert sum(len(rows) for rows in adapted._ROWS.values()) == 3
