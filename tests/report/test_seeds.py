"""Numbers over seeds: a target that is missed counts, comparisons go seed by seed and have an interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from covey.report.seeds import (
    Bound,
    Paired,
    differences,
    holm,
    interval,
    interval_within,
    may_be_equal,
    number_in_words,
    paired,
    ratios,
)
from experiments.stored_numbers import from_json, to_json


def test_a_run_that_misses_its_target_counts_with_its_whole_cost() -> None:
    assert number_in_words([400.0, 500.0, Bound(900.0)]) == "over 600 (2 of 3)"
    assert number_in_words([Bound(900.0), Bound(700.0)]) == "over 800 (0 of 2)"


def test_ratios_of_bounds() -> None:
    assert ratios([3.0, None, 1.0], [6.0, 1.0, None]) == [0.5, None, None]
    assert ratios([Bound(9.0)], [3.0]) == [Bound(3.0, "over")]
    assert ratios([3.0], [Bound(9.0)]) == [Bound(1 / 3, "under")]
    assert ratios([Bound(9.0)], [Bound(9.0)]) == [None], "both unknown upwards"
    assert ratios([1.0], [0.0]) == [None]


def test_differences_of_bounds() -> None:
    assert differences([3.0, Bound(5.0), 3.0], [1.0, 1.0, Bound(5.0)]) == [
        2.0,
        Bound(4.0, "over"),
        Bound(-2.0, "under"),
    ]


def test_an_interval_worked_out_by_hand() -> None:
    # 1, 2, 3: mean 2, deviation 1; t of 2 degrees of freedom at 97.5 % is 4.3027.
    low, high = interval([1.0, 2.0, 3.0])
    assert (low, high) == (
        pytest.approx(2 - 4.3027 / math.sqrt(3), abs=1e-4),
        pytest.approx(2 + 2.4841, abs=1e-4),
    )


def test_an_interval_stays_inside_the_range_by_hand() -> None:
    # 0.5 and 0.9: mean 0.7, standard error 0.2, t of 1 degree of freedom 12.7062: half 2.54124.
    # On the logit's scale log(0.7 / 0.3) = 0.847298, and half / (0.7 * 0.3) = 12.10114.
    low, high = interval_within([0.5, 0.9], 0.0, 1.0)
    assert low == pytest.approx(1 / (1 + math.exp(11.25384)), rel=1e-3)
    assert 1 - high == pytest.approx(1 / (1 + math.exp(12.94844)), rel=1e-3)
    # 1 and 3 above 0: mean 2, half 12.7062; 2 / exp(6.3531) and 2 * exp(6.3531).
    assert interval_within([1.0, 3.0], 0.0) == (
        pytest.approx(2 * math.exp(-6.3531), rel=1e-3),
        pytest.approx(2 * math.exp(6.3531), rel=1e-3),
    )


def test_an_interval_with_little_spread_is_students() -> None:
    numbers = [0.70, 0.7001, 0.6999, 0.7002, 0.6998]
    assert interval_within(numbers, 0.0, 1.0) == pytest.approx(interval(numbers), abs=1e-6)
    assert interval_within([1.0, 1.0], 0.0, 1.0) == (1.0, 1.0)
    assert interval_within([1.0, 2.0, 3.0]) == interval([1.0, 2.0, 3.0])


@pytest.mark.parametrize("numbers", [[0.0, 1.0], [1.0, 0.999], [1e-9, 0.0], [0.0, 1e-300]])
def test_no_interval_leaves_its_range(numbers: list[float]) -> None:
    low, high = interval_within(numbers, 0.0, 1.0)
    assert 0 <= low <= high <= 1


def test_comparisons_show_their_interval() -> None:
    assert number_in_words([1.0, 2.0, 3.0], "difference") == "2 [-0.48, 4.5]"
    # Logarithms -1, 0, 1: geometric mean 1, interval exp(+-2.4841).
    assert number_in_words([math.exp(-1), 1.0, math.e], "ratio") == "1 [0.083, 12]"
    assert number_in_words([0.5], "ratio") == "0.5"
    assert number_in_words([1.0, 1.0], "ratio") == "1"
    assert number_in_words([0.5, Bound(0.75, "under")], "ratio") == "under 0.6124 (1 of 2)"
    assert number_in_words([Bound(0.5, "over"), Bound(0.75, "under")], "ratio") == "-"


def test_bounds_are_stored_as_what_they_are() -> None:
    for number in (None, 0.5, Bound(3.0), Bound(2.0, "under")):
        assert from_json(to_json(number)) == number
    assert to_json(Bound(3.0)) == {"over": 3.0}


def test_a_paired_test_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t = 2 sqrt(3) = 3.4641 with 2 degrees of freedom, p = 0.0742."""
    found = paired([0.0, 0.0, 0.0], [1.0, 2.0, 3.0])
    assert found is not None
    assert found.difference == pytest.approx(2)
    assert found.p == pytest.approx(0.0742, abs=1e-4)
    assert found.interval == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-3)
    assert not found.distinguishable
    again = ttest_rel([1.0, 2.0, 3.5], [0.0, 0.3, 0.1])
    assert paired([0.0, 0.3, 0.1], [1.0, 2.0, 3.5]).p == pytest.approx(again.pvalue)


def test_seeds_that_only_one_has_are_not_paired() -> None:
    assert paired([1.0, None, 2.0], [1.5, 9.0, 2.5]).seeds == 2
    assert paired([1.0, None], [1.5, 9.0]) is None


def test_two_seeds_are_not_tested_however_alike_their_differences() -> None:
    """0.93 points with both of two seeds once read "[+0.93, +0.93], p < 0.001"."""
    for other in ([0.9093, 0.9193], [0.9093, 0.9195]):
        found = paired([0.9, 0.91], other)
        assert (found.p, found.interval, found.distinguishable) == (None, None, False)
    tests = holm([found, paired([0.0] * 3, [1.0, 2.0, 3.0])])
    assert tests[0] == found  # and is none of the tests that Holm counts
    assert tests[1].p == pytest.approx(0.0742, abs=1e-4)


def test_equal_differences_have_no_interval_and_the_p_of_the_sign_test() -> None:
    """Three equal signs of three are 2 of 8 outcomes: 0.25; six of six are 2 of 64."""
    three = paired([0.9, 0.91, 0.92], [0.91, 0.92, 0.93])
    assert (three.p, three.interval, three.distinguishable) == (0.25, None, False)
    six = paired([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    assert (six.p, six.distinguishable) == (0.03125, True)
    assert holm([six, three])[0].p == 0.0625
    same = paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert (same.difference, same.p) == (0.0, 1.0)
    assert may_be_equal(np.array([0.9, 0.91]), np.array([0.91, 0.92]))
    assert may_be_equal(np.array([0.9, 0.91, 0.92]), np.array([0.91, 0.92, 0.93]))
    assert not may_be_equal(np.arange(6.0), np.arange(6.0) + 1)


def test_holm_by_hand() -> None:
    """p of 0.01, 0.04, 0.03: times 3, 1, 2 in their order, never falling: 0.03, 0.06, 0.06."""
    tests = [Paired(difference=1.0, interval=(0.0, 2.0), p=p, seeds=5) for p in (0.01, 0.04, 0.03)]
    assert [one.p for one in holm([*tests[:2], None, tests[2]]) if one] == pytest.approx([0.03, 0.06, 0.06])


def test_an_interval_leaves_zero_out_exactly_where_holm_finds_a_difference() -> None:
    """Five differences around means of 0 to 4, in families of one to six tests."""
    rng = np.random.default_rng(3)
    verdicts = []
    for _ in range(200):
        means = rng.uniform(0, 4, size=rng.integers(1, 7))
        tests = holm([paired([0.0] * 5, list(rng.normal(mean, 1.5, 5))) for mean in means])
        verdicts += [
            (one.distinguishable, one.interval[0] > 0 or one.interval[1] < 0) for one in tests if one
        ]
    assert {verdict for verdict, _ in verdicts} == {True, False}
    assert all(verdict == apart for verdict, apart in verdicts)


def test_the_interval_of_the_first_of_two_is_that_of_half_the_level() -> None:
    """Differences 1, 2, 3 (p = 0.074) and 9, 10, 11 (p = 0.0033): the second is tested first, at 0.025, then the first.

    t of 2 degrees of freedom at 98.75 % is 6.2053, at 97.5 % 4.3027; both deviations are 1.
    """
    small, large = holm([paired([0.0] * 3, [1.0, 2.0, 3.0]), paired([0.0] * 3, [9.0, 10.0, 11.0])])
    assert small is not None
    assert large is not None
    assert large.interval == pytest.approx((10 - 6.2053 / 3**0.5, 10 + 6.2053 / 3**0.5), abs=1e-3)
    assert small.interval == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-3)
    assert (large.distinguishable, small.distinguishable) == (True, False)
