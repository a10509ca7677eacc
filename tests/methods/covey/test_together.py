"""One model or many, by held-out evidence: the decision by hand, and on fleets whose answer is known."""

import pytest

from covey.core.round import run_rounds
from covey.errors import UserError
from covey.methods.covey import covey
from covey.methods.covey.grouping import compared
from covey.parts.steps import Train
from covey.runs.config import fleet_of, resolve


def test_own_training_is_compared_with_the_averages_that_follow_it() -> None:
    """Own: 6 of 10 and 9 of 20 after rounds 1 and 2, .5 of 30; averaged: 16 of 20 and 14 of 20 in rounds 2 and 3, .75
    of 40. The error is sqrt(.25 / 30 + .1875 / 40) = .114109: -.25 is -2.190890 of it. The first model as it was
    received and the last training have nothing to be compared with."""
    own, averaged, z = compared([[10, 1, 6], [20, 16, 9], [20, 14, 20]])
    assert (own, averaged) == (0.5, 0.75)
    assert z == pytest.approx(-2.190890, abs=1e-6)
    assert compared([[10, 1, 6]]) == (0.0, 0.0, 0.0)
    assert compared([[10, 1, 6], [0, 0, 0]]) == (0.0, 0.0, 0.0)


def after(rounds: int, shift: dict):
    config = resolve(
        {
            "seed": 100,
            "data": {"clients": 16},
            "method": {"name": "covey", "per_round": 8, "start": "together"},
            "engine": {"mode": "serial"},
            "partition": {"name": "dir-class", "alpha": 10.0, "minimum": 10},
            "shift": shift,
        }
    )
    fleet = fleet_of(config)
    try:
        return run_rounds(config.method, fleet, rounds=rounds)
    finally:
        fleet.close()


def test_kinds_that_contradict_each_other_part_and_start_from_the_common_model() -> None:
    state = after(6, {"name": "label", "offsets": [0, 5]})
    assert set(state.groups.values()) == {0, 1}
    assert len(state.models) == 2
    assert "a model of its own" in state.notes["one model or many"]["text"]


def test_kinds_that_differ_in_brightness_alone_keep_one_model() -> None:
    state = after(6, {"name": "clustered", "clusters": 2, "images": ["brightness"]})
    assert "in 2 ways" in state.notes["clusters"]["text"]  # the bits say already that their classes lie alike
    assert set(state.groups.values()) == {0}
    assert len(state.models) == 1


def test_without_judgements_there_is_no_evidence() -> None:
    with pytest.raises(UserError, match="judgements"):
        covey(Train(), start="together", without=("serving",))
