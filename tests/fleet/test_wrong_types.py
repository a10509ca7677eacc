"""A step of one's own whose reply is of wrong types: one sentence with the step's name and line, on every engine."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch

from covey.core import Client, Reply, Step, Task, run_rounds
from covey.errors import UserError
from covey.methods.baselines import fedavg
from covey.parts.steps import Train
from covey.testing import small_fleet

TRAIN = Train(lr=0.1, batch=16)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"vector": [0.0] * 4810}, "its row (vector) is not a tensor but a list"),
    ({"size": "many"}, "its size is not a whole number of 64 bits but a str"),
    ({"size": None}, "its size is not a whole number of 64 bits but None"),
    ({"size": 10**400}, "its size is not a whole number of 64 bits but a larger one"),
    ({"slot": 1.5}, "its slot is not a whole number of 64 bits but a float"),
    ({"stats": [1]}, "its statistics (stats) have no names"),
    ({"stats": {"batches": 1, "loss": 10**400}}, "its loss is not a whole number of 64 bits"),
    (
        {"stats": {"batches": 1, "loss": object()}},
        "its loss is neither an array nor a plain value but a object",
    ),
]


@dataclass(frozen=True)
class Mine(Step):
    """Trains, and says something else in place of what it should."""

    changes: Any
    kind: ClassVar[str] = "train.mine"

    def __call__(self, client: Client, task: Task) -> Any:
        if self.changes == "nothing":
            return None
        return Reply(**{**vars(TRAIN(client, task)), **dict(self.changes)})

    def work(self, train: int, test: int) -> float:
        return float(train)


PLACE = f"step train.mine (Mine in {__file__}, line {Mine.__call__.__code__.co_firstlineno})"


@pytest.mark.parametrize(("changes", "why"), WRONG)
def test_a_reply_of_wrong_types_is_one_sentence_with_the_steps_place(
    changes: dict[str, Any], why: str
) -> None:
    method = replace(fedavg(TRAIN), local=Mine(tuple(changes.items())))
    with pytest.raises(UserError) as said:
        run_rounds(method, small_fleet(), rounds=1)
    assert str(said.value) == f"{PLACE} gives a reply that cannot be used: {why}"


@pytest.mark.parametrize("mode", ["processes", "wire"])
def test_on_other_engines_too(mode: str) -> None:
    method = replace(fedavg(TRAIN), local=Mine((("size", None),)))
    fleet = small_fleet(mode=mode)
    try:
        with pytest.raises(UserError, match="its size is not a whole number"):
            run_rounds(method, fleet, rounds=1)
    finally:
        fleet.close()


def test_no_reply_at_all_is_a_sentence() -> None:
    with pytest.raises(UserError, match="it is a NoneType, not a Reply"):
        run_rounds(replace(fedavg(TRAIN), local=Mine("nothing")), small_fleet(), rounds=1)


def test_numbers_may_be_numpys() -> None:
    import numpy as np

    method = replace(fedavg(TRAIN), local=Mine((("size", np.int64(3)),)))
    assert torch.isfinite(run_rounds(method, small_fleet(), rounds=1).models).all()
