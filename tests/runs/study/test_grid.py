"""A sweep is every combination of values; tuning tries ranges around the defaults."""

from __future__ import annotations

import pytest

from covey.errors import UserError
from covey.runs.config import resolve
from covey.runs.study.grid import axis, sweep_plan
from covey.runs.study.space import Knob, read_knob, space_of, with_values

TABLES = {"rounds": 2, "data": {"name": "digits", "clients": 4}, "method": {"name": "fedprox"}}


def test_every_combination_is_a_configuration() -> None:
    plan = sweep_plan(TABLES, ["train.lr=0.01,0.1", "method.mu=0,1"], 3)
    assert list(plan.configs) == [
        "train.lr=0.01 method.mu=0",
        "train.lr=0.01 method.mu=1",
        "train.lr=0.1 method.mu=0",
        "train.lr=0.1 method.mu=1",
    ]
    assert plan.configs["train.lr=0.1 method.mu=1"]["train"]["lr"] == 0.1
    assert plan.columns["train.lr=0.1 method.mu=1"] == {"train.lr": "0.1", "method.mu": "1"}


def test_commas_inside_brackets_belong_to_a_value() -> None:
    assert axis("shift.rotations=[0,1],[0,1,2]") == ("shift.rotations", ["[0,1]", "[0,1,2]"])
    assert axis("a.b='x,y',z") == ("a.b", ["'x,y'", "z"])


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ([], "at least one --over"),
        (["train.lr"], "must look like"),
        (["train.lr=0.1,0.1"], "names a value twice"),
        (["train.lr=0.1", "train.lr=0.2"], "is there twice"),
        (["seed=1,2"], "--seeds"),
        (["train.lr=-1"], r"train\.lr is -1"),
        (["train.speed=1"], "speed is not known"),
    ],
)
def test_a_mistake_is_one_sentence(over: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        sweep_plan(TABLES, over, 1)


def test_the_usual_space_leaves_budget_and_privacy_alone() -> None:
    space = space_of(resolve({**TABLES, "train": {"lr": 0.1}}), ())
    assert space["train.lr"] == Knob(low=0.01, high=1.0, log=True)
    assert "method.mu" in space
    assert not {"method.per_round", "train.epochs", "rounds"} & set(space)
    haccs = space_of(resolve({**TABLES, "method": {"name": "haccs"}}), ())
    assert not {"method.epsilon", "method.noise", "method.budget"} & set(haccs)


def test_ranges_and_choices_are_read() -> None:
    assert read_knob("train.lr=0.001..0.3") == ("train.lr", Knob(low=0.001, high=0.3, log=True))
    assert read_knob("train.epochs=1..4") == ("train.epochs", Knob(low=1, high=4, whole=True))
    assert read_knob("method.weighting=samples,equal")[1].values == ("samples", "equal")
    with pytest.raises(UserError, match="the smaller first"):
        read_knob("train.lr=3..1")


def test_only_what_the_method_has_is_tried() -> None:
    config = resolve({**TABLES, "method": {"name": "fedavg"}})
    assert list(space_of(config, ["train.lr=0.01..0.1", "method.mu=0,1"])) == ["train.lr"]
    with pytest.raises(UserError, match=r"--over train\.x is not a setting"):
        space_of(config, ["train.x=1,2"])


def test_values_are_put_where_they_belong_and_nothing_else_changes() -> None:
    before = {"train": {"lr": 0.1}, "rounds": 3}
    assert with_values(before, {"train.lr": 1.0, "data.validation": 0.2}) == {
        "train": {"lr": 1.0},
        "rounds": 3,
        "data": {"validation": 0.2},
    }
    assert before == {"train": {"lr": 0.1}, "rounds": 3}
