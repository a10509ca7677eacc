"""A method beside the best other on fleets with true clusters: numbers worked out by hand."""

import pytest

from experiments.clustered import beside_best, in_words


def test_the_best_other_is_the_one_with_the_highest_mean_of_those_that_count() -> None:
    score = {
        "one": {"m": [0.6, 0.7, 0.8], "IFCA": [0.5, 0.6, 0.7], "local": [0.4, 0.6, 0.7], "HACCS": [1, 1, 1]},
        "two": {"m": [0.6, 0.7, 0.9], "IFCA": [0.5, 0.6, 0.7], "CFIC": [0.6, 0.75, 0.9]},
        "three": {"m": [0.5, 0.6, 0.9], "IFCA": [0.4, 0.5, 0.6]},
    }
    one, two, three = beside_best(score, "m", ("one", "two", "three"))
    assert (one.other, two.other) == ("IFCA", "CFIC")
    assert one.ahead.difference == pytest.approx(0.1)
    assert two.ahead.difference == pytest.approx(-0.05 / 3)
    # differences .1, .1, .3: mean 1/6, standard error 1/15, t = 4.30
    assert three.ahead.interval == pytest.approx((1 / 6 - 4.3027 / 15, 1 / 6 + 4.3027 / 15), abs=1e-4)
    assert in_words([one, two, three]) == "above on 2 of 3 fleets, with the 95 % interval above 0 on 0."
