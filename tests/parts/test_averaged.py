"""A running average of every model, which serves clients while training continues from the last one."""

from types import SimpleNamespace

import torch

from covey.core.round import Round, Task
from covey.parts.averaged import AVERAGES, KeepAverages, SendAverages


def a_round(rows: list[list[float]], slots: list[int], memory: dict) -> Round:
    replies = [SimpleNamespace(slot=slot) for slot in slots]
    return SimpleNamespace(models=torch.tensor(rows), replies=replies, memory=memory)


def test_the_first_model_is_taken_whole_and_later_ones_by_three_tenths():
    """10, then 20: 10 + .3 * 10 = 13; then 3: 13 - .3 * 10 = 10. The second model has replies in the last round."""
    memory: dict = {}
    for rows, slots in [([[10.0], [5.0]], [0, 0]), ([[20.0], [5.0]], [0]), ([[3.0], [7.0]], [0, 1])]:
        KeepAverages()(a_round(rows, slots, memory))
    averages = AVERAGES.of(memory)
    torch.testing.assert_close(averages[0], torch.tensor([10.0]))
    torch.testing.assert_close(averages[1], torch.tensor([7.0]))


def test_clients_are_sent_averages_and_models_that_have_none_as_they_are():
    now = a_round([[1.0], [2.0]], [], {})
    AVERAGES.keep(now.memory, {0: torch.tensor([9.0])})

    def send(now, ids):
        return {i: Task(models=now.models[[1, 0]], slots=(1, 0), args={"x": i}) for i in ids}

    tasks = SendAverages(send=send)(now, [4])
    assert tasks[4].models.tolist() == [[2.0], [9.0]]
    assert tasks[4].args == {"x": 4}
    assert now.models.tolist() == [[1.0], [2.0]]
