"""Metrics: numbers by hand, directions, and how clients' values are put together."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import pytest
import torch

from covey.errors import UserError
from covey.parts.measure import Measuring
from covey.training import metrics
from covey.training.metrics import SCORES, WHOLE, Metric, Metrics, base_name, metric
from covey.training.objective import Classification, Regression

# Six samples of three classes. Predicted: 0 0 1 1 2 0.
TARGET = torch.tensor([0, 0, 1, 1, 1, 2])
GUESS = torch.tensor([0, 0, 1, 1, 2, 0])
OUTPUTS = torch.nn.functional.one_hot(GUESS, 3).float() * 4


def value(which: Metric, outputs: torch.Tensor, target: torch.Tensor) -> float | None:
    assert which.of is not None
    return which.of(outputs, target)


def test_macro_f1_by_hand() -> None:
    # class 0: precision 2/3, recall 1; class 1: 1 and 2/3; class 2: 0
    assert value(metrics.macro_f1, OUTPUTS, TARGET) == pytest.approx((0.8 + 0.8 + 0) / 3)


def test_balanced_accuracy_by_hand() -> None:
    assert value(metrics.balanced_accuracy, OUTPUTS, TARGET) == pytest.approx((1 + 2 / 3 + 0) / 3)


def test_auc_of_two_classes_is_the_share_of_pairs_in_order() -> None:
    outputs = torch.tensor([[0.0, s] for s in (0.1, 0.4, 0.35, 0.8)])
    assert value(metrics.auc, outputs, torch.tensor([0, 0, 1, 1])) == pytest.approx(3 / 4)


def test_auc_of_many_classes_is_each_against_the_rest_over_those_that_are_there() -> None:
    torch.manual_seed(0)
    outputs, target = torch.randn(40, 4), torch.arange(40) % 3  # class 3 is not there
    chances = outputs.double().softmax(1)
    each = []
    for label in range(3):
        inside, outside = chances[target == label, label], chances[target != label, label]
        each.append(float((inside[:, None] > outside[None]).double().mean()))
    assert value(metrics.auc, outputs, target) == pytest.approx(sum(each) / 3)


def test_auc_is_not_defined_where_there_is_one_class() -> None:
    assert value(metrics.auc, OUTPUTS, torch.zeros(6, dtype=torch.long)) is None


def test_brier_by_hand() -> None:
    # chances (1/2, 1/2) for a label of either: 1/4 + 1/4; (3/4, 1/4) for the first: 1/16 + 1/16
    outputs = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0]])
    assert value(metrics.brier, outputs, torch.tensor([1, 0])) == pytest.approx((1 / 2 + 1 / 8) / 2)


def test_a_metric_by_class_needs_so_many_of_every_class() -> None:
    told = Measuring(metrics=("auc", "brier"), per_class=2).told
    assert [m.per_class for m in told] == [2, 0]
    outputs = torch.tensor([[0.0, s] for s in (0.1, 0.4, 0.35, 0.8)])
    assert told[0].value(outputs, torch.tensor([0, 0, 1, 1])) == pytest.approx(3 / 4)
    assert told[0].value(outputs, torch.tensor([0, 0, 0, 1])) is None
    assert told[1].value(outputs, torch.tensor([0, 0, 0, 1])) is not None


def test_perplexity_of_equal_chances_is_the_number_of_classes() -> None:
    assert value(metrics.perplexity, torch.zeros(5, 7), torch.arange(5)) == pytest.approx(7)
    text = torch.zeros(2, 7, 3)  # one label per position
    assert value(metrics.perplexity, text, torch.zeros(2, 3, dtype=torch.long)) == pytest.approx(7)


def test_calibration_error_by_hand() -> None:
    pytest.importorskip("torchmetrics")
    # All ten are said to be of class 1 with confidence 0.8, and six are.
    outputs = torch.tensor([[0.0, math.log(4)]]).repeat(10, 1)
    target = torch.tensor([1] * 6 + [0] * 4)
    assert value(metrics.calibration_error, outputs, target) == pytest.approx(0.2, abs=1e-6)


def test_errors_of_a_regression_by_hand() -> None:
    outputs, target = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[1.0], [3.0], [2.0]])
    assert value(metrics.rmse, outputs, target) == pytest.approx((5 / 3) ** 0.5)
    assert value(metrics.r2, outputs, target) == pytest.approx(1 - 5 / 2)


def test_worst_clients_follow_the_direction() -> None:
    up = Metric(name="up", higher_is_better=True).over_clients([0.9, 0.5, 0.7], [10, 30, 60])
    down = Metric(name="down", higher_is_better=False).over_clients([0.9, 0.5, 0.7], [10, 30, 60])
    assert (up["worst10"], down["worst10"]) == (0.5, 0.9)
    assert up["mean"] == pytest.approx(0.7)
    assert up["weighted"] == pytest.approx(0.66)
    nobody = Metric(name="x", higher_is_better=None).over_clients([0.9, 0.5], [1, 1])
    assert "worst10" not in nobody


def test_perplexities_are_put_together_by_their_logarithms() -> None:
    found = metrics.perplexity.over_clients([2.0, 8.0], [3, 1])
    assert found["mean"] == pytest.approx(4)
    assert found["weighted"] == pytest.approx(2 ** ((3 * 1 + 1 * 3) / 4))


@pytest.mark.parametrize(
    ("up", "better", "reached"), [(True, True, True), (False, False, False), (None, False, False)]
)
def test_best_and_target_follow_the_direction(up: bool | None, better: bool, reached: bool) -> None:
    which = Metric(name="x", higher_is_better=up)
    assert which.better(0.8, than=0.7) is better
    assert which.reached(0.8, target=0.7) is reached
    assert which.reached(0.7, target=0.7)


def test_the_metrics_of_a_run_know_their_directions() -> None:
    known = Metrics.of(Classification(), [metrics.macro_f1])
    assert known["accuracy"].higher_is_better
    assert known["accuracy-worst10"].higher_is_better
    assert known["loss"].higher_is_better is False
    assert known["macro-f1-mean"] is metrics.macro_f1
    assert known["of-somebody"].higher_is_better is None
    assert Metrics.of(Regression())["mse"].higher_is_better is False
    assert known.on_clients("macro-f1") == "macro-f1-mean"


def test_a_metric_of_ones_own() -> None:
    @metric(higher_is_better=False, together="weighted")
    def wrong_zeros(outputs: torch.Tensor, target: torch.Tensor) -> float:
        return float(((outputs.argmax(1) == 0) & (target != 0)).sum())

    assert wrong_zeros.name == "wrong-zeros"
    assert value(wrong_zeros, OUTPUTS, TARGET) == 1
    assert Metrics.of(Classification(), [wrong_zeros]).on_clients("wrong-zeros") == "wrong-zeros-weighted"


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "recall-mean", "f1-worst10"])
def test_a_name_that_would_be_read_as_something_else_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="a metric is called"):
        Metric(name=name, higher_is_better=True)


def test_base_names() -> None:
    assert base_name("macro-f1-mean") == "macro-f1"
    assert base_name("macro-f1") == "macro-f1"


def mine(of: object, name: str = "mine") -> Metric:
    return metric(higher_is_better=True, name=name)(of)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of", "found"),
    [
        (lambda *_: torch.tensor(0.5), 0.5),
        (lambda *_: True, 1.0),
        (lambda *_: None, None),
        (lambda *_: math.nan, None),
        (lambda *_: math.inf, None),
    ],
)
def test_what_a_metric_of_ones_own_may_give(of: object, found: float | None) -> None:
    assert mine(of).value(OUTPUTS, TARGET) == found


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (lambda *_: "x", "ValueError: could not convert string to float: 'x'"),
        (lambda *_: 1j, "TypeError"),
        (lambda *_: torch.rand(3), "ValueError|RuntimeError"),
        (lambda *_: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_no_number_is_one_sentence(of: object, why: str) -> None:
    with pytest.raises(UserError, match=rf"metric 'mine' gives no number: ({why})"):
        mine(of).value(OUTPUTS, TARGET)


def test_a_metric_cannot_change_what_others_are_told() -> None:
    outputs, target = OUTPUTS.clone(), TARGET.clone()
    assert mine(lambda o, t: float(o.zero_().sum() + t.zero_().sum())).value(outputs, target) == 0
    assert torch.equal(outputs, OUTPUTS)
    assert torch.equal(target, TARGET)


def test_two_metrics_of_one_name_are_one_sentence() -> None:
    with pytest.raises(UserError, match=r"measure.metrics has 2 metrics called 'mine'; name them apart"):
        Measuring(metrics=(mine(lambda *_: 0.0), mine(lambda *_: 1.0)))
    with pytest.raises(
        UserError, match=r"a metric of your own is called 'accuracy', as what the objective gives"
    ):
        Measuring(metrics=(mine(lambda *_: 0.1, "accuracy"),))
    Measuring(metrics=("accuracy", "loss"))


@pytest.mark.parametrize(
    ("decorate", "sentence"),
    [
        (lambda: metric(lambda outputs, target: 0.0), "a metric must say its direction"),
        (lambda: metric(), "a metric must say its direction"),
        (lambda: metric(higher_is_better="yes"), "a metric must say its direction"),
        (
            lambda: metric(higher_is_better=True, together="median"),
            "together is 'median'; allowed: mean, weighted",
        ),
    ],
)
def test_a_metric_without_a_direction_is_one_sentence(decorate, sentence: str) -> None:
    """Also `@covey.metric` without parentheses, which Python alone would answer with a TypeError."""
    with pytest.raises(UserError, match=sentence):
        decorate()


def test_a_metric_goes_to_a_worker_process_and_is_the_same_there():
    """Its function's name is that of the metric: the worker finds it there, and what was set beside it."""
    for one in (*SCORES.values(), *WHOLE.values()):
        assert pickle.loads(pickle.dumps(one)) == one
        strict = replace(one, per_class=10)
        assert pickle.loads(pickle.dumps(strict)) == strict
