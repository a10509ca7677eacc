"""How long one client's update may be beside the others', and how many samples it may say it has."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.core import Reply, Task
from covey.errors import UserError
from covey.fleet.guard import BUFFERS, Guard, Lengths, lengths_of, medians_of_others
from covey.model import Layout

LAYOUT = Layout(names=("w",), shapes=((4,),), trainable=4, size=4, buffers="average")


def lengths(own: list[float], start: float = 1.0) -> Lengths:
    """Updates of these lengths, without buffers, of a model that is `start` long."""
    count = len(own)
    return Lengths(
        np.stack([np.array(own), np.zeros(count)], axis=1),
        np.stack([np.full(count, start), np.zeros(count)], 1),
    )


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, float("inf")]), min_size=2, max_size=9))
def test_the_median_of_the_others(values: list[float]) -> None:
    wanted = [np.median(np.delete(values, place)) for place in range(len(values))]
    found = medians_of_others(np.array(values))
    assert np.array_equal(np.isfinite(found), np.isfinite(wanted))
    assert np.array_equal(found[np.isfinite(found)], np.array(wanted)[np.isfinite(found)])


def test_ten_times_the_median_of_the_others_is_too_long() -> None:
    """Of 2, 3, 4 and 31 the others of the last have the median 3: 31 is too long, 30 is not."""
    guard = Guard(norm=10)
    assert list(guard.too_long(lengths([2, 3, 4, 30]))) == []
    assert list(guard.too_long(lengths([2, 3, 4, 31]))) == [3]
    assert "guard.norm" in guard.too_long(lengths([2, 3, 4, 31]))[3]


def test_an_update_shorter_than_its_model_is_never_too_long() -> None:
    assert Guard().too_long(lengths([0.001, 0.001, 0.9], start=1.0)) == {}
    assert list(Guard().too_long(lengths([0.001, 0.001, 1.1], start=1.0))) == [2]


def test_alone_an_update_is_measured_by_its_model() -> None:
    assert Guard(norm=10).too_long(lengths([9.9], start=1.0)) == {}
    assert list(Guard(norm=10).too_long(lengths([10.1], start=1.0))) == [0]


def test_when_all_updates_are_long_nobody_stands_out() -> None:
    assert Guard().too_long(lengths([1e5, 2e5, 3e5])) == {}


def test_off_is_off_and_less_than_once_is_a_mistake() -> None:
    assert Guard(norm=0).too_long(lengths([1, 1, 1e30])) == {}
    assert Guard(samples=0).too_many([1, 10**18]) == {}
    with pytest.raises(UserError, match=r"guard\.norm is 0\.5"):
        Guard(norm=0.5)


def test_lengths_are_those_of_the_update_from_the_row_that_was_sent() -> None:
    """From (3, 4, 0, 0), 5 long, to (3, 4, 2, 0): 2 long. A model at zero counts as 0.1 a value: 0.1 sqrt(4)."""
    models = torch.tensor([[0.0, 0, 0, 0], [3, 4, 0, 0]])
    tasks = {7: Task(models=models, slots=(0, 1)), 8: Task(models=models, slots=(0, 1))}
    replies = [
        Reply(id=7, vector=torch.tensor([3.0, 4, 2, 0]), slot=1),
        Reply(id=8, vector=torch.tensor([0.0, 0, 0, 1]), slot=0),
    ]
    found = lengths_of(replies, tasks, LAYOUT)
    assert found.own[:, 0].tolist() == [2.0, 1.0]
    assert found.start[:, 0].tolist() == pytest.approx([5.0, 0.2])
    assert found.stands_out() == (0, 2.0)


def test_buffers_have_a_bound_of_their_own() -> None:
    layout = Layout(names=("w", "b"), shapes=((2,), (2,)), trainable=2, size=4, buffers="average")
    task = Task(models=torch.zeros(1, 4), slots=(0,))
    honest = [Reply(id=i, vector=torch.tensor([1.0, 0, 1, 0])) for i in range(3)]

    def refused(value: float) -> list[int]:
        replies = [*honest, Reply(id=3, vector=torch.tensor([1.0, 0, value, 0]))]
        return list(Guard(norm=10).too_long(lengths_of(replies, dict.fromkeys(range(4), task), layout)))

    assert refused(10 * BUFFERS) == []
    assert refused(10 * BUFFERS + 1) == [3]


def test_a_direction_that_moves_the_model_is_bounded_as_an_update_is() -> None:
    """The others' gradients are 2 long, the model 5: 20 is the most."""
    task = Task(models=torch.tensor([[3.0, 4, 0, 0]]), slots=(0,))

    def refused(value: float, kind: type = np.float32) -> dict[int, str]:
        told = [2.0, 2.0, 2.0, value]
        replies = [
            Reply(
                id=i, vector=torch.tensor([3.0, 4, 1, 0]), stats={"gradient": np.array([of, 0, 0, 0], kind)}
            )
            for i, of in enumerate(told)
        ]
        return Guard(norm=10).too_long(
            lengths_of(replies, dict.fromkeys(range(4), task), LAYOUT, ["gradient"])
        )

    assert refused(20) == {}
    assert refused(21)[3].startswith("its gradient is 21 long, 10 times the others' is 20")
    assert list(refused(2**31, np.uint32)) == [3]
    assert list(refused(3e38)) == [3]


def test_infinite_lengths_are_too_long() -> None:
    task = Task(models=torch.zeros(1, 4), slots=(0,))
    rows = [torch.ones(4), torch.ones(4), torch.full((4,), 3e38)]
    replies = [Reply(id=i, vector=row) for i, row in enumerate(rows)]
    assert list(Guard().too_long(lengths_of(replies, dict.fromkeys(range(3), task), LAYOUT))) == [2]


def test_a_thousand_times_the_others_samples_is_not_believed() -> None:
    assert Guard().too_many([300, 500, 400]) == {}
    assert list(Guard().too_many([300, 10**18, 400])) == [1]
    assert Guard().too_many([10**18]) == {}  # nobody to compare with
