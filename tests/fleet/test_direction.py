"""Who points away from the others, round after round, is refused; who merely differs is not."""

import numpy as np
import pytest
import torch

from covey.core.ledger import Conduct, Ledger
from covey.core.round import Reply, Task, run_rounds
from covey.data import federate, load
from covey.fleet import direction, guard
from covey.fleet.direction import astray, median_cosines, note_directions, refused_for_direction
from covey.fleet.engine import Engine
from covey.fleet.guard import Guard, lengths_of
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.parts.measure import scores
from covey.parts.steps import Train
from covey.runs.config import fleet_of, resolve
from covey.training.models import build
from covey.training.rows import Layout
from experiments.hostile import Attack, attacked

LAYOUT = Layout(names=("w",), shapes=((2,),), trainable=2, size=2, buffers="average")
BESIDE_FOUR = [[1.0, 0.0]] * 4


def noted(rows: list[list[float]], rounds: int = 2, keep: bool = False) -> tuple[Ledger, dict[int, str]]:
    """What is remembered after so many rounds with these updates of a model at (3, 4), and who is refused at last."""
    task = Task(models=torch.tensor([[3.0, 4.0]]), slots=(0,), keep=keep)
    replies = [Reply(id=i, vector=torch.tensor([3.0 + x, 4.0 + y])) for i, (x, y) in enumerate(rows)]
    tasks = dict.fromkeys(range(len(rows)), task)
    ledger, compared = Ledger(), list[int]()
    for _ in range(rounds):
        compared = note_directions(replies, tasks, lengths_of(replies, tasks, LAYOUT), ledger)
    return ledger, refused_for_direction(replies, compared, ledger)


@pytest.fixture
def _of_five(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers worked out by hand are of few replies."""
    monkeypatch.setattr(guard, "ENOUGH", 5)


def test_the_median_cosine_to_the_others() -> None:
    """(1, 0), (1, 1) and (-1, 0): the cosines are 0.7071, -1 and -0.7071; nothing has cosine 0 to everything."""
    rows = np.array([[1.0, 0], [1, 1], [-1, 0]])
    assert median_cosines(rows @ rows.T).tolist() == pytest.approx([-0.146447, 0, -0.853553], abs=1e-6)
    rows = np.array([[0.0, 0], [2, 0], [3, 0]])
    assert median_cosines(rows @ rows.T).tolist() == [0, 0.5, 0.5]


@pytest.mark.usefixtures("_of_five")
def test_who_points_away_twice_is_refused_and_not_after_one_update() -> None:
    """Beside (1, 0) four times, (-1, 0) has cosine -1 and lies 2 below the others' 1."""
    ledger, refused = noted([*BESIDE_FOUR, [-1.0, 0.0]])
    assert ledger.conduct[4] == Conduct(compared=2, cosine=-2, apart=-4)
    assert ledger.conduct[0] == Conduct(compared=2, cosine=2, apart=0)
    assert list(refused) == [4]
    assert "point away from the others' (cosine -1.00 in the mean of 2" in refused[4]
    assert noted([*BESIDE_FOUR, [-1.0, 0.0]], rounds=1)[1] == {}


@pytest.mark.usefixtures("_of_five")
def test_who_goes_another_way_is_not_refused() -> None:
    """(0, 1) is a right angle from the others and moves nothing back."""
    assert noted([*BESIDE_FOUR, [0.0, 1.0]])[1] == {}


@pytest.mark.usefixtures("_of_five")
def test_nobody_is_where_all_differ_where_half_would_be_or_where_rows_stay_at_home() -> None:
    """0.4, 0.2, 0, -0.2 and -0.4 have the deviation 1.4826 x 0.2, three of which are 0.89: no client is beyond."""
    means = (0.4, 0.2, 0.0, -0.2, -0.4)
    ledger = Ledger(conduct={i: Conduct(compared=3, cosine=-1.2, apart=3 * m) for i, m in enumerate(means)})
    assert astray(ledger, ledger.conduct) == {}
    ledger.conduct[4].apart = 3 * -0.9
    assert astray(ledger, ledger.conduct).keys() == {4}
    assert refused_for_direction([Reply(id=4), Reply(id=1)], [0, 1], ledger) == {}
    assert list(refused_for_direction([Reply(id=4), Reply(id=1), Reply(id=0)], [0, 1, 2], ledger)) == [4]
    assert noted([*BESIDE_FOUR, [-1.0, 0.0]], keep=True)[0].conduct == {}


def test_who_goes_across_and_hardly_back_has_other_data() -> None:
    """The others agree by 0.35: a cosine of -0.17 is less than half of that backwards, one of -0.18 more."""
    others = {i: Conduct(compared=2, cosine=0.7, apart=0.0) for i in range(8)}
    for cosine, wrong in ((-0.17, set()), (-0.18, {8})):
        one = Conduct(compared=2, cosine=2 * cosine, apart=2 * (cosine - 0.35))
        everybody = {**others, 8: one}
        assert astray(Ledger(conduct=everybody), everybody).keys() == wrong


def test_an_honest_minority_with_rotated_images_is_heard() -> None:
    """One client in five has its images upside down: FedAvg refuses none of them."""
    tables = {
        "rounds": 6,
        "seed": 41,
        "data": {"name": "digits", "clients": 20},
        "partition": {"name": "iid"},
        "shift": {"name": "rotation", "rotations": [0, 0, 0, 0, 2]},
    }
    config = resolve(tables)
    fleet = fleet_of(config)
    try:
        run_rounds(config.method, fleet, rounds=config.top.rounds)
    finally:
        fleet.close()
    assert {one.compared >= 2 for i, one in fleet.ledger.conduct.items() if i % 5 == 4} == {True}
    assert fleet.ledger.problems == []


def test_rounds_of_fewer_than_ten_are_left_alone() -> None:
    assert noted([*BESIDE_FOUR, [-1.0, 0.0]])[0].conduct == {}
    assert list(noted([*BESIDE_FOUR, *BESIDE_FOUR, [1.0, 0.0], [-1.0, 0.0]])[1]) == [9]


@pytest.mark.usefixtures("_of_five")
def test_of_a_large_model_some_columns_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two columns one is drawn in each round: (-1, 1) beside (1, 1) points away in the first, not in the second."""
    monkeypatch.setattr(direction, "COLUMNS", 1)
    ledger, _ = noted([*([[1.0, 1.0]] * 4), [-1.0, 1.0]], rounds=40)
    assert -40 < ledger.conduct[4].cosine < 40
    again, _ = noted([*([[1.0, 1.0]] * 4), [-1.0, 1.0]], rounds=40)
    assert again.conduct == ledger.conduct


@pytest.mark.parametrize("attack", [None, "flip", "inner-product"])
def test_in_a_run_the_liars_are_refused_and_nobody_else(attack: Attack | None) -> None:
    method = fedavg(Train(lr=0.1, batch=16), per_round=10)
    data = federate(load("digits"), partition="iid", clients=10, seed=0)
    model = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=1)
    fleet = LocalFleet(data, model, engine=Engine(mode="serial"), guard=Guard(), seed=5)
    if attack:
        attacked(fleet, (1, 6), attack)
    try:
        accuracy = scores(method, run_rounds(method, fleet, rounds=6), fleet)["global-test/accuracy"]
    finally:
        fleet.close()
    assert {problem.client for _, problem in fleet.ledger.problems} == ({1, 6} if attack else set())
    assert accuracy > 0.85
