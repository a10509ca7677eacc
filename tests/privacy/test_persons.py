"""What a person with several rows has lost: beside routes that know nothing of it."""

import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from scipy.stats import binom, norm

from covey.core.privacy_loss import Loss
from covey.privacy.composition import composed
from covey.privacy.persons import person_epsilon

DELTA = 1e-5


def steps(noise: float, rate: float) -> Loss:
    return Loss(what="updates", mechanism="steps", noise=noise, rate=rate)


def test_one_row_is_a_sample() -> None:
    told = {steps(1.2, 0.1): 40, Loss(what="summaries", mechanism="stated", noise=0.5): 1}
    assert person_epsilon(told, DELTA, 1) == composed(told, DELTA, "sample")


def test_without_sampling_three_rows_are_a_third_of_the_noise() -> None:
    assert person_epsilon({steps(12.0, 1.0): 4}, DELTA, 3) == pytest.approx(
        get_epsilon_gaussian(12.0 / 3 / 2, DELTA), rel=1e-3
    )


def test_answers_that_state_their_epsilon_count_once_for_each_row() -> None:
    told = {Loss(what="summaries", mechanism="stated", noise=0.5): 2}
    assert person_epsilon(told, DELTA, 3) == pytest.approx(3.0)
    whole = {Loss(what="labels", mechanism="stated", noise=0.5, whole=True): 2}
    assert person_epsilon(whole, DELTA, 3) == pytest.approx(1.0)


def test_one_step_of_three_drawn_rows_by_integrating_the_densities() -> None:
    """delta(epsilon) = integral of (p - e^epsilon q)+, p the mixture over how many of the rows were drawn."""
    noise, rate, rows = 1.5, 0.2, 3
    epsilon = person_epsilon({steps(noise, rate): 1}, 1e-3, rows)
    x = np.linspace(-20, 25, 2_000_001)
    mixture = sum(binom.pmf(j, rows, rate) * norm.pdf(x, j, noise) for j in range(rows + 1))
    alone = norm.pdf(x, 0, noise)
    for first, second in ((mixture, alone), (alone, mixture)):
        delta = np.trapezoid(np.maximum(first - math.exp(epsilon) * second, 0), x)
        assert delta <= 1e-3 * 1.001
    worst = max(
        np.trapezoid(np.maximum(a - math.exp(epsilon - 0.01) * b, 0), x)
        for a, b in ((mixture, alone), (alone, mixture))
    )
    assert worst > 1e-3  # and not much too large


def test_sums_hide_whatever_a_client_changes_and_promises_say_nothing() -> None:
    told = {Loss(what="updates", mechanism="sum", noise=4.0): 10}
    assert person_epsilon(told, DELTA, 5) == pytest.approx(composed(told, DELTA, "sample"), rel=1e-3)
    promised = {Loss(what="updates", mechanism="promised", noise=1.0, rate=5e-6): 1}
    assert person_epsilon(promised, DELTA, 2) == math.inf
