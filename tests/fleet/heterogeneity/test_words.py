"""The words for the numbers of heterogeneity say no more than the numbers and their intervals do."""

import math

import pytest

from covey.fleet.heterogeneity.words import HETEROGENEITY_LEVELS, WORDS, level_of, meaning


@pytest.mark.parametrize("name", WORDS)
def test_words_are_no_surer_than_the_interval(name: str) -> None:
    """An interval below the bound of what is low, above it, and across it from either side."""
    bound, high = HETEROGENEITY_LEVELS[name]
    _, much, little = WORDS[name]
    assert meaning(name, 0.5 * bound, 0.0, 0.9 * bound) == little
    assert meaning(name, 2 * high, 1.1 * bound, 3 * high) == much
    assert meaning(name, 2 * bound, 0.5 * bound, 3 * bound) == f"likely: {much}"
    assert meaning(name, 2 * bound, 0.0, 3 * bound) == f"perhaps: {much}"
    assert meaning(name, 0.5 * bound, 0.0, 3 * bound) == "none seen, but it cannot be ruled out"
    assert meaning(name, 0.5 * bound, 0.4 * bound, 3 * bound) == "some, probably little"


@pytest.mark.parametrize("name", WORDS)
def test_a_number_without_an_interval_is_taken_as_it_is(name: str) -> None:
    bound, high = HETEROGENEITY_LEVELS[name]
    assert [level_of(name, value) for value in (0.5 * bound, 1.1 * bound, 1.1 * high, math.nan)] == [
        "low",
        "middle",
        "high",
        "unknown",
    ]
    assert meaning(name, 1.1 * high) == WORDS[name][1]
    assert meaning(name, 0.5 * bound) == WORDS[name][2]
    assert meaning(name, math.nan).startswith("cannot be told")
