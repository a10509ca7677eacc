"""How long one client's update may be beside the others', and how many samples it may say it has."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.core.round import Reply, Task
from covey.errors import UserError
from covey.fleet import guard
from covey.fleet.guard import BUFFERS, Guard, Lengths, lengths_of, medians_of_others
from covey.training.rows import Layout

LAYOUT = Layout(names=("w",), shapes=((4,),), trainable=4, size=4, buffers="average")


@pytest.fixture(autouse=True)
def _few_are_enough(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers worked out by hand are of few replies."""
    if "of_fewer_than_ten" not in request.node.name:
        monkeypatch.setattr(guard, "ENOUGH", 3)


def lengths(own: list[float], start: float = 1.0) -> Lengths:
    """Updates of these lengths, without buffers, of a model that is `start` long."""
    count = len(own)
    return Lengths(
        np.stack([np.array(own), np.zeros(count)], axis=1),
        np.stack([np.full(count, start), np.zeros(count)], 1),
    )


def shares(
    own: list[float], start: float = 1.0, slots: tuple[int, ...] = (), batches: tuple[int, ...] = ()
) -> list[float]:
    """What is left of updates of these lengths at twice the others' length."""
    plain = lengths(own, start)
    return [float(s) for s in Lengths(plain.own, plain.start, slots=slots, batches=batches).shares(2.0)]


def test_a_long_update_is_shortened_to_so_many_times_the_others() -> None:
    """Beside 2, 3 and 4 (median 3) an update of 12 keeps 6 of it; 6 is left as it is."""
    assert shares([2, 3, 4, 12]) == [1, 1, 1, 0.5]
    assert shares([2, 3, 4, 6]) == [1, 1, 1, 1]


def test_of_fewer_than_ten_replies_none_is_shortened() -> None:
    assert shares([3.0] * 8 + [12.0]) == [1.0] * 9
    assert shares([3.0] * 9 + [12.0]) == [1.0] * 9 + [0.5]


def test_of_fewer_than_ten_that_are_asked_and_not_of_ten_whose_replies_are_missing() -> None:
    """An accomplice who sends nothing, or nonsense, does not switch the bound off."""
    plain = lengths([3.0] * 8 + [12.0])
    assert Lengths(plain.own, plain.start, asked=10).shares(2.0).tolist() == [1.0] * 8 + [0.5]
    few = lengths([3.0, 12.0])
    assert Lengths(few.own, few.start, asked=10).shares(2.0).tolist() == [1.0, 1.0]
    tasks = {i: Task(models=torch.zeros(1, 4), slots=(0,)) for i in range(10)}
    replies = [Reply(id=i, vector=torch.ones(4)) for i in range(9)]
    assert lengths_of(replies, tasks, LAYOUT).asked == 10


def test_each_model_has_its_own_median() -> None:
    """In a model whose updates are 1 long 8 becomes 2; among those of 8 it would be left."""
    assert shares([1, 1, 1, 8, 8, 8, 8], slots=(0, 0, 0, 0, 1, 1, 1)) == [1, 1, 1, 0.25, 1, 1, 1]


def test_a_model_with_two_replies_is_compared_with_the_whole_round() -> None:
    """Of two nobody can say which is odd: the tiny update of model 1 does not shorten its neighbour's."""
    assert shares([1, 1, 1, 0.001, 1.9], slots=(0, 0, 0, 1, 1)) == [1, 1, 1, 1, 1]
    assert shares([1, 1, 1, 1, 4], slots=(0, 0, 0, 1, 1)) == [1, 1, 1, 1, 0.5]
    assert shares([0.1, 100], start=1.0) == [1, 1]  # two in all


def test_of_three_a_tiny_update_does_not_shorten_the_others() -> None:
    """The others of 1 are 0 and 1, of median 0.5: twice that is 1."""
    assert shares([0, 1, 1]) == [1, 1, 1]


def test_four_times_the_batches_may_go_twice_as_far() -> None:
    """The others are 1 long on 1 batch; on 4 batches 2 is usual, 4 the most, and of 8 half is left."""
    assert shares([1, 1, 1, 4], batches=(1, 1, 1, 4)) == [1, 1, 1, 1]
    assert shares([1, 1, 1, 8], batches=(1, 1, 1, 4)) == [1, 1, 1, 0.5]


def test_a_slight_update_is_never_shortened() -> None:
    """A twentieth of a model of 100 is 5."""
    assert shares([0, 0, 0, 5], start=100.0) == [1, 1, 1, 1]
    assert shares([0, 0, 0, 10], start=100.0) == [1, 1, 1, 0.5]


def test_what_is_shortened_is_what_was_learned_and_travels() -> None:
    """From (3, 4) by 1, 1, 1 and 8: of the last 2 are left at norm = 2. Buffers stay; so does a row that stays home."""
    layout = Layout(names=("w", "b"), shapes=((2,), (1,)), trainable=2, size=3, buffers="average")
    model = torch.tensor([[3.0, 4, 7]])
    replies = [Reply(id=i, vector=torch.tensor([3.0 + by, 4, 9])) for i, by in enumerate((1, 1, 1, 8))]

    def found(keep: bool, norm: float = 2.0) -> dict[int, list[float]]:
        tasks = dict.fromkeys(range(4), Task(models=model, slots=(0,), keep=keep))
        made = Guard(norm=norm).shortened(replies, tasks, lengths_of(replies, tasks, layout), layout)
        return {i: reply.vector.tolist() for i, reply in made.items() if reply.vector is not None}

    assert found(keep=False) == {3: [5.0, 4.0, 9.0]}
    assert replies[3].vector is not None
    assert replies[3].vector.tolist() == [11, 4, 9]  # what came is left as it came
    assert found(keep=True) == {}
    assert found(keep=False, norm=0) == {}
    assert found(keep=False, norm=8) == {}


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


@pytest.mark.filterwarnings("error")
def test_one_who_moves_where_nobody_else_does_stands_out() -> None:
    """As in boosting, where a client may have nothing to add; the ratio is large and no overflow."""
    place, times = lengths([0.0, 0.0, 1e30, 0.0]).stands_out()
    assert place == 2
    assert 1e60 < times < np.inf


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
