"""Clients that know each other's answers and lie: what each attack sends."""

import numpy as np
import pytest
import torch

from covey.core.round import Reply, Task, run_rounds
from covey.data import federate, load
from covey.fleet.engine import Engine
from covey.fleet.guard import Guard
from covey.fleet.local import LocalFleet
from covey.methods.baselines import fedavg
from covey.parts.measure import scores
from covey.parts.steps import Train
from covey.testing import small_federation
from covey.training.models import build
from experiments.hostile import Attack, Liars, attacked, false_portraits, false_updates, with_false_labels

TASK = Task(models=torch.tensor([[1.0, 1.0]]), slots=(0,))


@pytest.mark.parametrize(
    ("attack", "sent"),
    [("flip", [0.0, 1.0]), ("scale", [-8.0, 1.0]), ("inner-product", [-29.0, 1.0]), ("alie", [2.5, 1.0])],
)
def test_what_each_attack_sends(attack: Attack, sent: list[float]) -> None:
    """From 1 the liar moves by 1, the others by 2 and 4: their mean is 3, their deviation 1; 3 - 1.5 = 1.5."""
    there = {i: Reply(id=i, vector=torch.tensor([1.0 + by, 1.0])) for i, by in enumerate((1.0, 2.0, 4.0))}
    found = false_updates(there, dict.fromkeys(there, TASK), frozenset({0}), attack)
    assert list(found) == [0]
    assert found[0].vector is not None
    assert found[0].vector.tolist() == sent


def test_min_max_stays_within_the_honest_ones() -> None:
    """The others move by (2, 1) and (2, -1), 2 apart: from (2 - g, 0) both are sqrt(g^2 + 1) away, so g = sqrt(3)."""
    there = {
        i: Reply(id=i, vector=TASK.models[0] + torch.tensor([2.0, by]))
        for i, by in enumerate((0.0, 1.0, -1.0))
    }
    found = false_updates(there, dict.fromkeys(there, TASK), frozenset({0}), "min-max")
    assert found[0].vector is not None
    assert found[0].vector.tolist() == pytest.approx([3.0 - 3**0.5, 1.0])


def test_a_sleeper_is_just_short_enough_when_it_wakes() -> None:
    """The others are as long as 2 and 4, of which torch's median is the smaller: -1.4 x 2 along their mean."""
    there = {i: Reply(id=i, vector=torch.tensor([1.0 + by, 1.0])) for i, by in enumerate((1.0, 2.0, 4.0))}
    found = false_updates(there, dict.fromkeys(there, TASK), frozenset({0}), "sleeper")
    assert found[0].vector is not None
    assert found[0].vector.tolist() == pytest.approx([-1.8, 1.0])


def test_false_labels_are_counted_from_the_other_end_in_training_only() -> None:
    honest = small_federation()
    data = with_false_labels(honest, [2])
    assert np.array_equal(data.shares[2].train.labels(), 9 - honest.shares[2].train.labels())
    assert np.array_equal(data.shares[2].test.labels(), honest.shares[2].test.labels())
    assert np.array_equal(data.shares[1].train.labels(), honest.shares[1].train.labels())


def test_false_portraits() -> None:
    """Client 0 is of cluster 0, as 1; client 2 of cluster 1."""
    said = {
        i: Reply(id=i, stats={"counts": np.ones(1), "views": np.ones(2), "bits": np.array([i, i], np.uint8)})
        for i in range(3)
    }

    def told(portrait: str) -> list[int]:
        found = false_portraits(said, frozenset({0}), portrait, [0, 0, 1])  # type: ignore[arg-type]
        return [int(b) for b in found[0].stats["bits"]]

    assert told("imitate") == [2, 2]
    assert told("between") == [1, 2]
    assert told("own") == [254, 254]


def test_a_tenth_of_the_clients_lies_and_at_least_one() -> None:
    assert len(Liars(share=0.1, seed=0).among(30)) == 3
    assert len(Liars(share=0.1, seed=0).among(4)) == 1
    assert Liars(share=0.2, seed=1).among(50) != Liars(share=0.2, seed=2).among(50)


def test_by_default_an_update_times_minus_nine_does_little_harm() -> None:
    """Two of ten, in every round; without the guard they take the model with them."""
    method = fedavg(Train(lr=0.1, batch=16), per_round=10)
    data = federate(load("digits"), partition="iid", clients=10, seed=0)

    def accuracy(attack: Attack | None, norm: float | None = None) -> float:
        model = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=1)
        guard = Guard() if norm is None else Guard(norm=norm)
        fleet = LocalFleet(data, model, engine=Engine(mode="serial"), guard=guard, seed=5)
        if attack:
            attacked(fleet, (1, 6), attack)
        try:
            return scores(method, run_rounds(method, fleet, rounds=8), fleet)["global-test/accuracy"]
        finally:
            fleet.close()

    honest = accuracy(None)
    assert accuracy("scale", norm=0) < honest - 0.2
    assert accuracy("scale") > honest - 0.1
