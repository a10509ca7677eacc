"""The yardstick of natural fleets: numbers by hand for a fleet of two clients."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.studies.natural import LEAST, fit, numbers, predict, usual_models

ANSWERS = [np.array([[0.75, 0.25], [0.5, 0.5]]), np.tile([[0.25, 0.75]], (LEAST, 1))]
TEST = [(np.zeros((2, 1)), np.array([0, 1])), (np.zeros((LEAST, 1)), np.ones(LEAST, np.int64))]


def test_over_rows_and_over_clients_with_enough_of_them() -> None:
    found = numbers(ANSWERS, TEST, 2)
    rows = LEAST + 2
    assert found["accuracy"] == pytest.approx((1 + LEAST) / rows)
    assert found["over clients"] == 1.0  # of the one that has enough
    assert found["log loss"] == pytest.approx(-(np.log(0.75) + np.log(0.5) + LEAST * np.log(0.75)) / rows)
    assert found["Brier"] == pytest.approx((2 * 0.25**2 + 2 * 0.5**2 + LEAST * 2 * 0.25**2) / rows)


def test_errors_of_numbers() -> None:
    answers = [np.array([[1.0], [3.0]]), np.array([[0.0]])]
    test = [(np.zeros((2, 1)), np.zeros(2)), (np.zeros((1, 1)), np.array([2.0]))]
    found = numbers(answers, test, 0)
    assert found["log loss"] == pytest.approx((1 + 9 + 4) / 3)
    assert found["RMSE"] == pytest.approx((2 * np.sqrt(5) + 1 * 2) / 3)


def test_a_client_of_one_class_has_its_majority_and_chances_stand_under_the_classes() -> None:
    model = fit(usual_models(3, boosted=False)["linear"], (np.zeros((4, 2)), np.full(4, 2)))
    assert predict(model, np.zeros((1, 2)), 3).tolist() == [[0.0, 0.0, 1.0]]
