"""Lower bounds by canaries: numbers of the paper and by hand, and noise halved on purpose is caught."""

import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from scipy.stats import binom

from covey.core import Task
from covey.privacy.canaries import Guesses, estimated_epsilon, guessed, normal_epsilon, surest
from covey.privacy.sketch import SketchClasses
from experiments.studies.audit import HalvedSketch, canary_clients


def test_a_thousand_right_guesses_of_a_thousand_certify_5_8() -> None:
    """q^1000 = 0.05, q = e^eps / (1 + e^eps): eps = log(q / (1 - q)) = 5.81."""
    rate = 0.05 ** (1 / 1000)
    found = Guesses(canaries=1000, made=1000, right=1000).certified(0.0)
    assert found == pytest.approx(math.log(rate / (1 - rate)), abs=1e-6)
    assert round(found, 1) == 5.8


def test_guesses_by_chance_certify_nothing_and_delta_makes_bounds_smaller() -> None:
    assert Guesses(canaries=1000, made=1000, right=510).certified(1e-5) == 0.0
    exact = Guesses(canaries=1000, made=200, right=180)
    assert exact.certified(1e-3) < exact.certified(1e-5) < exact.certified(0.0)


def test_the_p_value_by_summing_it_up() -> None:
    """beta + 2 m delta max over i of P[v > B >= v - i] / i, by hand for r = 3, v = 2."""
    rate = math.e / (1 + math.e)
    p0, p1, p2, p3 = (binom.pmf(k, 3, rate) for k in range(4))
    alpha = max(p1 / 1, (p1 + p0) / 2)
    found = Guesses(canaries=10, made=3, right=2).p_value(1.0, 0.001)
    assert found == pytest.approx(p2 + p3 + 2 * 10 * 0.001 * alpha)


def test_the_highest_are_said_to_be_in_and_the_lowest_out() -> None:
    scores = np.array([5.0, -3.0, 0.1, 4.0, -2.0, 0.0])
    inside = np.array([True, False, True, False, True, False])
    assert guessed(scores, inside, 4) == Guesses(canaries=6, made=4, right=2)


def test_randomised_response_is_certified_nearly_tight() -> None:
    """Of epsilon 1, by 20,000 canaries; noise that does not keep the promise is found out."""
    rng = np.random.default_rng(0)
    inside = rng.random(20_000) < 0.5
    for truth, least, most in ((1.0, 0.93, 1.0), (2.0, 1.9, 2.0)):
        kept = rng.random(20_000) < math.exp(truth) / (1 + math.exp(truth))
        answers = np.where(inside == kept, 1.0, -1.0)
        right = int(((answers > 0) == inside).sum())
        assert least < Guesses(canaries=20_000, made=20_000, right=right).certified(1e-9) <= most


def test_epsilon_of_two_normal_distributions_is_the_gaussian_mechanisms() -> None:
    assert normal_epsilon((0.0, 2.0), (1.0, 2.0), 1e-5) == pytest.approx(
        get_epsilon_gaussian(2.0, 1e-5), abs=1e-3
    )


@pytest.mark.parametrize(("kind", "caught"), [(SketchClasses, False), (HalvedSketch, True)])
def test_portraits_that_promise_epsilon_1_and_have_half_the_noise_are_caught(
    kind: type[SketchClasses], caught: bool
) -> None:
    """A million canaries, white-box: each is one direction of one class at one client, in or out by chance."""
    step = kind(epsilon=1.0, delta=1e-8, dims=64)
    scores, inside = [], []
    for client, which in canary_clients(160, classes=100, dims=64, seed=3):
        scores.append(step(client, Task()).stats["sums"].ravel())
        inside.append(which)
    bound = surest(np.concatenate(scores), np.concatenate(inside), 1e-8)
    assert (bound > 1.0) == caught, bound


def test_the_one_shot_estimate_of_a_sum_of_clients() -> None:
    """One sum of 500 random unit canaries under noise 2: near the Gaussian mechanism's own; half of it is seen."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((1000, 10_000))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    told = directions[:500].sum(axis=0)
    for noise in (2.0, 1.0):
        products = directions @ (told + noise * rng.standard_normal(10_000))
        found = estimated_epsilon(products[500:], products[:500], 1e-5)
        assert found == pytest.approx(get_epsilon_gaussian(noise, 1e-5), rel=0.25)
