"""Server optimisers by hand, and beside torch.optim where it has the same rule."""

import pytest
import torch

from covey.core.round import Reply
from covey.errors import UserError
from covey.parts.update.optimiser import ServerOptimiser


def walked(a_round, update: ServerOptimiser, averages: list[float], start: float = 0.0) -> list[float]:
    """The model of one parameter after each round, whose clients' average is so far from it each time."""
    memory: dict = {}
    w, found = start, []
    for number, move in enumerate(averages, start=1):
        now = a_round((w,), replies={0: ((w + move,), 1)}, memory=memory, number=number)
        w = float(update(now, torch.tensor([[w + move]])))
        memory = now.memory
        found.append(w)
    return found


def test_adam_by_hand(a_round) -> None:
    """lr 1, beta1 .5, beta2 .75, tau .5; the average lies 2 above, then 1 below: g = -2, then 1.

    m = -1, v = .75 .25 + .25 4 = 1.1875, w = 1 / (1.089725 + .5) = .629040.
    m = -.5 + .5 = 0, so that w stays.
    """
    update = ServerOptimiser(rule="adam", lr=1.0, beta1=0.5, beta2=0.75, tau=0.5)
    assert walked(a_round, update, [2.0, -1.0]) == pytest.approx([0.629040, 0.629040], abs=1e-5)


def test_yogi_by_hand(a_round) -> None:
    """lr 1, beta1 0, beta2 .75, tau .5; g = -2, then 1.

    v = .25 - .25 4 sign(.25 - 4) = 1.25, w = 2 / (1.118034 + .5) = 1.236068.
    v = 1.25 - .25 1 sign(.25) = 1, w = 1.236068 - 1 / 1.5 = .569401.
    """
    update = ServerOptimiser(rule="yogi", lr=1.0, beta1=0.0, beta2=0.75, tau=0.5)
    assert walked(a_round, update, [2.0, -1.0]) == pytest.approx([1.236068, 0.569401], abs=1e-5)


@pytest.mark.parametrize(
    ("update", "make"),
    [
        (
            ServerOptimiser(rule="momentum", lr=0.5, beta1=0.9),
            lambda w: torch.optim.SGD([w], lr=0.5, momentum=0.9),
        ),
        (
            ServerOptimiser(rule="adagrad", lr=0.1, beta1=0.0, tau=0.01),
            lambda w: torch.optim.Adagrad([w], lr=0.1, eps=0.01, initial_accumulator_value=0.01**2),
        ),
    ],
    ids=["FedAvgM is SGD", "FedAdagrad is Adagrad"],
)
def test_the_same_steps_as_torch(a_round, update, make) -> None:
    moves = [2.0, -1.0, 0.5, 0.5, -3.0]
    w = torch.nn.Parameter(torch.tensor([1.0]))
    optimiser = make(w)
    expected = []
    for move in moves:
        w.grad = torch.tensor([-move])
        optimiser.step()
        expected.append(float(w.detach()))
    assert walked(a_round, update, moves, start=1.0) == pytest.approx(expected, rel=1e-6)


def test_momentum_zero_and_rate_one_is_the_average(a_round) -> None:
    update = ServerOptimiser(rule="momentum", beta1=0.0)
    assert walked(a_round, update, [2.0, -1.0]) == pytest.approx([2.0, 1.0])


def test_every_model_has_its_own_and_one_without_replies_stays(a_round) -> None:
    """Row 1 gets a reply in round 1 only: then it stays, and its momentum with it."""
    update = ServerOptimiser(rule="momentum", beta1=0.5)
    now = a_round((0.0,))
    now.models = torch.tensor([[0.0], [10.0]])
    now.replies = [
        Reply(id=0, vector=torch.tensor([1.0]), slot=0),
        Reply(id=1, vector=torch.tensor([14.0]), slot=1),
    ]
    new = update(now, torch.tensor([[1.0], [14.0]]))
    later = a_round((0.0,), memory=now.memory, number=2)
    later.models = new
    later.replies = [Reply(id=0, vector=torch.tensor([2.0]), slot=0)]
    assert update(later, torch.tensor([[2.0], [14.0]])).tolist() == [[2.5], [14.0]]  # 1 + (1 + .5 1)


def test_buffers_are_averaged(a_round) -> None:
    now = a_round((0.0, 5.0), replies={0: ((1.0, 9.0), 1)}, trainable=1)
    assert ServerOptimiser(rule="momentum", lr=3.0)(now, torch.tensor([[1.0, 9.0]])).tolist() == [[3.0, 9.0]]


def test_wrong_settings_are_named() -> None:
    with pytest.raises(UserError, match="rule is 'sgd'"):
        ServerOptimiser(rule="sgd")  # type: ignore[arg-type]
