"""American and British spellings name the same setting, value and thing; the run folder has ours."""

from __future__ import annotations

from typing import Any

import pytest

from covey.errors import UserError
from covey.runs.config import resolve
from covey.settings.catalogue import METHODS, SHIFTS
from covey.settings.spelling import spelled


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("optimizer", ["lr", "optimiser"], "optimiser"),
        ("optimiser", ["lr", "optimizer"], "optimizer"),
        ("semi-decentralised", ["decentralized", "semi-decentralized"], "semi-decentralized"),
        ("neighbors", ["neighbours"], "neighbours"),
        ("color", ["colour", "blur"], "colour"),
        ("labelling", ["labeling"], "labeling"),
        ("noise", ["poise"], "noise"),
        ("lr", ["lr"], "lr"),
    ],
)
def test_a_name_is_found_in_either_spelling(name: str, known: list[str], found: str) -> None:
    assert spelled(name, known) == found


def settled(**tables: Any) -> str:
    base = {"rounds": 1, "data": {"name": "digits", "clients": 20}, "method": {"name": "fedavg"}}
    return resolve({**base, **tables}).toml()


def test_both_give_the_same_configuration() -> None:
    assert settled(train={"optimizer": "adam"}) == settled(train={"optimiser": "adam"})
    assert settled(method={"name": "decentralised"}) == settled(method={"name": "decentralized"})
    assert METHODS["centralised"] is METHODS["centralized"]
    assert "semi-decentralised" in METHODS


def test_a_setting_in_two_spellings_is_refused() -> None:
    with pytest.raises(UserError, match=r"train\.optimiser is given in two spellings; give one"):
        settled(train={"optimizer": "adam", "optimiser": "sgd"})


def test_an_effect_has_both_spellings_too() -> None:
    from covey.data.loading import load

    data = load("digits")
    counts = data.y.new_zeros((2, 10)).numpy()
    american, british = (SHIFTS["clustered"](data, counts, images=(name,)) for name in ("color", "colour"))
    assert american == british
