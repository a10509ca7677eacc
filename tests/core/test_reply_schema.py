"""What statistics may be: the range of each, and why others are refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from covey.core.reply_schema import EPSILON, SHARE, Known, Stat, objection
from covey.core.round import Step, Task
from covey.fleet.bookkeeping import check_reply
from covey.methods.feddrift import TellLosses
from covey.methods.fedsoft import SoftTrain
from covey.methods.mime import MimicTrain
from covey.methods.scaffold import ControlledTrain
from covey.parts.portraits.portrait import DescribeClasses
from covey.parts.steps import Evaluate, Train
from covey.parts.steps.embedding import Embed
from covey.parts.steps.labels import CountLabels
from covey.parts.steps.summaries import LabelSummary
from covey.testing import small_fleet

KNOWN = Known(classes=3, shape=(1, 8, 8), train=50, test=20, lowest_loss=0.0)
GOOD = {"loss": 0.5, "batches": 2}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"loss": -1.0}, "its loss is -1; it must lie in 0 to"),
        ({"loss": 1e308}, "its loss is 1e+308"),
        ({"loss": float("nan")}, "its loss is nan"),
        ({"loss": "low"}, "its loss is a str, not a number"),
        ({"loss": True}, "its loss is a bool"),
        ({"batches": 10**15}, "its batches is 1e+15; it must lie in 0 to 2"),
        ({"batches": 1.5}, "not a whole number"),
        ({"own": float("inf")}, "its own is inf"),
        ({"own": np.array([1.0, 1e308])}, "its own holds NaN, infinity or numbers beyond"),
        ({"own": [1.0, float("nan")]}, "its own is nan"),
        ({"epsilon": -1.0}, "its epsilon is -1"),
        ({"epsilon": "none"}, "its epsilon is a str"),
    ],
)
def test_what_a_training_reply_may_not_tell(change: dict[str, Any], why: str) -> None:
    expected = Train(epochs=1, batch=32).expects(KNOWN)
    assert objection(GOOD, expected) == ""
    assert objection({**GOOD, "epsilon": float("inf")}, expected) == ""
    assert why in objection({**GOOD, **change}, expected)


def test_a_missing_statistic_is_named() -> None:
    assert objection({"loss": 1.0}, Train().expects(KNOWN)) == "its batches is missing"
    assert objection({}, Evaluate().expects(KNOWN)) == ""  # what it tells depends on the objective
    assert objection({}, {"epsilon": EPSILON}) == ""


def test_a_loss_of_ones_own_may_be_negative() -> None:
    assert objection({**GOOD, "loss": -7.0}, Train().expects(Known(train=50))) == ""


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ([20.0, 30.0, 0.0], ""),
        ([0.0, 0.0, 0.0], "adds up to 0; it must be 1 to 50"),
        ([1e308, 1.0, 1.0], "holds 1 to 1e+308"),
        ([20.0, 31.0, 0.0], "adds up to 51; it must be 1 to 50"),
        ([-1.0, 3.0, 0.0], "holds -1 to 3"),
        ([1.0, 2.0], "has shape (2,), not (3,)"),
        ([float("nan"), 1.0, 1.0], "holds nan"),
    ],
)
def test_label_counts_add_up_to_no_more_than_the_samples_that_there_are(
    counts: list[float], why: str
) -> None:
    found = objection({"labels": np.array(counts)}, CountLabels().expects(KNOWN))
    assert found.startswith("its labels") if why else found == ""
    assert why in found


def test_shares_add_up_to_one() -> None:
    expected = LabelSummary().expects(KNOWN)
    assert objection({"shares": np.full(3, 1 / 3)}, expected) == ""
    assert "adds up to 0" in objection({"shares": np.zeros(3)}, expected)
    assert "adds up to 3" in objection({"shares": np.ones(3)}, expected)


@pytest.mark.parametrize(
    ("step", "name", "length"),
    [
        (TellLosses(), "losses", 2),  # one per model that was sent
        (SoftTrain(train=Train(lr=0.1)), "importance", 2),
        (ControlledTrain(train=Train(lr=0.1)), "control", 7),  # as many as the model learns
        (MimicTrain(train=Train(lr=0.1)), "gradient", 7),
        (Embed(autoencoder="ae-fc"), "bits", 8),  # 3 classes of 20 bits
        (DescribeClasses(), "views", 4),  # two of pictures
    ],
)
def test_arrays_are_as_long_as_the_question_says(step: Step, name: str, length: int) -> None:
    stat = step.expects(replace(KNOWN, models=2, learned=7))[name]
    right = np.full(length, 1 / length) if name == "importance" else np.ones(length, np.int64)
    assert objection({name: right}, {name: stat}) == ""
    assert "has shape" in objection({name: np.append(right, 1)}, {name: stat})


def test_a_portrait_has_the_length_that_the_server_expects() -> None:
    fleet = small_fleet()
    (reply,) = fleet.ask(DescribeClasses(), {0: Task()})
    assert check_reply(reply, 0, DescribeClasses(), Task(), fleet.layout, fleet.known(0)) == ""
    told = replace(reply, stats={**reply.stats, "counts": reply.stats["counts"] + 1e30})
    assert "its counts" in check_reply(told, 0, DescribeClasses(), Task(), fleet.layout, fleet.known(0))


def test_arrays_of_words_and_lists_in_place_of_arrays_are_refused() -> None:
    expected = {"bits": Stat(low=0, high=255, shape=(None,))}
    assert objection({"bits": np.zeros(9, np.uint8)}, expected) == ""
    assert "has shape" in objection({"bits": np.zeros((2, 2), np.uint8)}, expected)
    assert "not an array" in objection({"bits": [1, 2]}, expected)
    assert "not an array" in objection({"bits": np.array(["a"])}, expected)
    assert "not a number" in objection({"share": np.zeros(1)}, {"share": SHARE})


@pytest.mark.parametrize("extra", [{"mine": {"a": 1}}, {"mine": [1.0]}, {"mine": "high"}, {"undefined": 3}])
def test_an_evaluation_tells_numbers(extra: dict[str, Any]) -> None:
    fleet = small_fleet()
    task = Task(models=fleet.start()[None], slots=(0,))
    (reply,) = fleet.ask(Evaluate(), {0: task})
    told = replace(reply, stats={**reply.stats, **extra})
    assert check_reply(reply, 0, Evaluate(), task, fleet.layout, fleet.known(0)) == ""
    assert f"its {next(iter(extra))} is a" in check_reply(
        told, 0, Evaluate(), task, fleet.layout, fleet.known(0)
    )
