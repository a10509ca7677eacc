"""Who is first, and who cannot be told from the first."""

import numpy as np
import pytest

from experiments.scoreboard import (
    against_the_best,
    chance_margin,
    draw_scoreboard,
    in_words,
    may_be_equal,
    scores,
    standings,
    wrapped,
)

BOARD = {
    "IID": {"a": [0.90, 0.92, 0.91], "b": [0.90, 0.91, 0.92], "c": [0.70, 0.715, 0.715]},
    "rotated": {"a": [0.80, 0.82, 0.81], "b": [0.60, 0.61, 0.63], "c": [0.70, 0.71, 0.73]},
}


def test_the_best_mean_is_first_and_paired_differences_that_may_be_chance_are_level():
    iid, rotated = standings(BOARD)
    assert iid.order[2] == "c"
    assert iid.level == {"a", "b"}
    assert rotated.order == ("a", "c", "b")
    assert rotated.level == {"a"}


def test_a_difference_that_is_the_same_in_every_seed_is_no_chance():
    # 0.001, 0.0011, 0.0009: the interval of the mean is 0.0008 to 0.0012, however much the seeds differ
    best = np.array([0.5, 0.7, 0.9])
    assert not may_be_equal(best, best - [0.001, 0.0011, 0.0009])
    assert may_be_equal(best, best - [0.05, -0.06, 0.02])
    assert may_be_equal(best, best)


def test_a_target_that_was_missed_is_never_level_with_one_that_was_reached():
    seconds = scores(
        {"cells": [{"column": "s", "case": "x", "row": "a", "values": [1.0, 2.0]},
                   {"column": "s", "case": "x", "row": "b", "values": [1.0, {"over": 9.0}]}]},
        "s",
    )  # fmt: skip
    (place,) = standings(seconds, higher_is_better=False)
    assert place.order == ("a", "b")
    assert place.level == {"a"}


def test_the_words_name_every_fleet_where_the_method_is_not_first():
    assert in_words(standings(BOARD), "a", "accuracy") == (
        "In accuracy, `a` is first on 2 of 2 fleets, significantly so on 1 of them."
    )
    assert in_words(standings(BOARD), "c", "accuracy").endswith("it is behind on IID, rotated.")


def test_a_method_stands_beside_the_best_of_the_others_and_is_bold_where_none_may_equal_it():
    beside = against_the_best(BOARD, "a", "{:.3g}".format)
    assert beside == {"IID": ["0.91 (b)", "0.91"], "rotated": ["0.713 (c)", "**0.81**"]}


def test_a_time_that_no_other_method_reached_is_never():
    times = {"IID": {"a": [3.0, 4.0], "b": [np.inf, 5.0]}}
    beside = against_the_best(times, "a", "{:.1f}".format, higher_is_better=False)
    assert beside == {"IID": ["never", "**3.5**"]}


def test_the_picture_is_drawn(tmp_path):
    draw_scoreboard(BOARD, tmp_path / "board.png", "title")
    assert (tmp_path / "board.png").stat().st_size > 5000


def test_long_names_are_wrapped():
    assert wrapped("label skew and rotated") == "label skew\nand rotated"


def test_with_few_seeds_a_method_far_behind_is_not_level_for_being_erratic() -> None:
    """Values 1, 3 and 2, 2: what is left is +-.5, so MSE = 1 with one degree of freedom, and t sqrt(2 / 2) = 12.7.

    A method between 0.2 and 0.9 cannot be told from one at 0.95 by three seeds of its own; beside four steady ones, it
    can.
    """
    assert chance_margin({"a": [1.0, 3.0], "b": [2.0, 2.0]}) == pytest.approx(12.706, abs=1e-3)
    assert chance_margin({"a": [1.0], "b": [2.0]}) == np.inf
    steady = {f"steady {k}": [0.95 - 0.001 * k, 0.951, 0.949] for k in range(12)}
    score = {"fleet": {**steady, "erratic": [0.2, 0.4, 0.9]}}
    (plain,) = standings(score)
    (strict,) = standings(score, few_seeds=True)
    assert "erratic" in plain.level
    assert strict.level == frozenset(steady)
