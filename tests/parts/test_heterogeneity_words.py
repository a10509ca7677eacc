"""The words for the numbers of heterogeneity say no more than the numbers do."""

import pytest

from covey.parts.heterogeneity_words import LEVELS, WORDS, level_of, meaning


@pytest.mark.parametrize("name", WORDS)
def test_a_low_number_above_zero_is_not_called_nothing(name: str) -> None:
    """A tenth, a half and twice of the bound for low; noise that hides all."""
    bound, high = LEVELS[name]
    _, much, little, nothing = WORDS[name]
    assert [meaning(name, value) for value in (0.1 * bound, 0.5 * bound, 1.01 * high)] == [
        nothing,
        little,
        much,
    ]
    assert level_of(name, 0.5 * bound) == "low"
    assert meaning(name, float("nan")) == "the noise hides it"
