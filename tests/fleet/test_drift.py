"""Data that change while a run is under way."""

import numpy as np
import pytest

from covey.data import federate, load
from covey.errors import UserError
from covey.fleet.client_data import ClientData
from covey.fleet.devices import Devices
from covey.fleet.drift import share_changed


def clients(**drift) -> ClientData:
    data = federate(load("digits"), partition="dir-class", clients=4, seed=0, alpha=0.3)
    return ClientData(data, Devices(drifts=({"clients": [0, 1], "round": 3, **drift},)))


@pytest.mark.parametrize(
    ("drift", "shares"),
    [
        ({}, [0, 0, 1, 1, 1, 1, 1, 1]),
        ({"course": "gradual", "rounds": 4}, [0, 0, 0.25, 0.5, 0.75, 1, 1, 1]),
        ({"course": "recurring", "rounds": 2}, [0, 0, 1, 1, 0, 0, 1, 1]),
    ],
)
def test_the_course_of_a_drift(drift, shares) -> None:
    table = {"clients": [0, 1], "round": 3, **drift}
    assert [share_changed(table, 0, number) for number in range(1, 9)] == shares
    staggered = {**table, "stagger": 2}
    assert [share_changed(staggered, 1, number) for number in range(3, 9)] == shares[:6]


def test_a_gradual_drift_changes_a_growing_part_of_the_samples() -> None:
    there = clients(course="gradual", rounds=4, label_offset=1)
    before = np.sort(there.train(0, 1).labels())
    half = there.train(0, 4)
    moved = sum(part.shift.label_offset for part in half.parts for _ in range(len(part)))
    assert len(half) == len(before)
    assert moved / len(half) == pytest.approx(0.5, abs=0.05)
    assert there.train(2, 8).labels().tolist() == there.train(2, 1).labels().tolist()


def test_pictures_and_label_mixes_drift_too() -> None:
    bright = clients(images=["brightness"], strength=0.5)
    assert bright.train(1, 3).tensors()[0].mean() > bright.train(1, 2).tensors()[0].mean()
    mixed = clients(mix_of=3)
    own, other = mixed.train(3, 1).labels(), mixed.train(0, 3).labels()
    assert len(other) == len(mixed.train(0, 1))
    assert set(other.tolist()) <= set(own.tolist())


@pytest.mark.parametrize(
    ("drift", "sentence"),
    [
        ({"course": "slow"}, "course is 'slow'; allowed: sudden, gradual, recurring"),
        ({"images": ["fog"]}, "images"),
        ({"strength": 3}, "strength is 3; allowed: a number from 0 to 1"),
        ({"rounds": 0}, "rounds is 0"),
    ],
)
def test_a_mistake_is_one_sentence(drift, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        clients(**drift)
