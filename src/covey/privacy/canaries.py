"""An empirical lower bound of epsilon, beside the promised upper one: canaries that are there or not, and guesses.

*One run* (Steinke, Nasr and Jagielski, 2023): m canaries are each put in with chance 1/2, all in the same run. Whoever
sees what was told guesses r of them, those that it is surest of, and is right v times. Under (epsilon, delta) that is
no more likely than P[Binomial(r, e^eps / (1 + e^eps)) >= v] + 2 m alpha delta, so that many right guesses refute a
promise.

*One shot* (Andrew et al., 2024): for clients. The products of what was told with the canaries' random directions are
about normal, with canaries and without; epsilon is that between these two distributions. An estimate, not a bound.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array

CONFIDENCE = 0.95
MOST = 50.0  # no larger epsilon is looked for


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """How many canaries there were, how many were guessed, and how many of these rightly."""

    canaries: int
    made: int
    right: int

    def certified(self, delta: float, confidence: float = CONFIDENCE) -> float:
        """The largest epsilon that this many right guesses refute; 0 where they refute none."""
        low, high = 0.0, MOST
        if self.p_value(low, delta) > 1 - confidence:
            return 0.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.p_value(middle, delta) <= 1 - confidence else (low, middle)
        return low

    def p_value(self, epsilon: float, delta: float) -> float:
        """How likely so many right guesses are at most under (epsilon, delta): Theorem 5.2, as in their appendix D."""
        from scipy.stats import binom

        rate = 1 / (1 + math.exp(-epsilon))
        as_many = float(binom.sf(self.right - 1, self.made, rate))
        fewer = np.cumsum(binom.pmf(self.right - np.arange(1, self.right + 1), self.made, rate))
        alpha = float((fewer / np.arange(1, self.right + 1)).max(initial=0.0))
        return min(1.0, as_many + alpha * delta * 2 * self.canaries)


def guessed(scores: Array, inside: NDArray[np.bool_], made: int) -> Guesses:
    """The highest `made` / 2 scores are said to be in, the lowest to be out, of the others nothing is said."""
    order = np.argsort(scores)
    half = made // 2
    right = int(inside[order[len(order) - half :]].sum()) + int((~inside[order[:half]]).sum())
    return Guesses(canaries=len(scores), made=2 * half, right=right)


def surest(scores: Array, inside: NDArray[np.bool_], delta: float, confidence: float = CONFIDENCE) -> float:
    """The bound by the best of a few numbers of guesses, each at its share of what may go wrong (Bonferroni)."""
    numbers = [made for made in (len(scores) // 2000, len(scores) // 500, len(scores) // 50) if made >= 20]
    numbers = numbers or [len(scores) // 2 * 2]
    each = 1 - (1 - confidence) / len(numbers)
    return max(guessed(scores, inside, made).certified(delta, each) for made in numbers)


def estimated_epsilon(without: Array, with_them: Array, delta: float) -> float:
    """Epsilon between the normal distributions of these two sets of products.

    A canary adds the same to every product, so that both sets have one deviation: of two estimates of it the tails of
    delta would make far too much.
    """
    deviation = math.sqrt((float(without.var(ddof=1)) + float(with_them.var(ddof=1))) / 2)
    means = float(without.mean()), float(with_them.mean())
    return normal_epsilon((means[0], deviation), (means[1], deviation), delta)


def normal_epsilon(first: tuple[float, float], second: tuple[float, float], delta: float) -> float:
    """The least epsilon at `delta` of two normal distributions, as (mean, deviation), in both directions."""
    spread = max(first[1], second[1])
    x = np.linspace(min(first[0], second[0]) - 14 * spread, max(first[0], second[0]) + 14 * spread, 400_001)
    p, q = (
        np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * math.sqrt(2 * math.pi)) for mean, sd in (first, second)
    )
    step = float(x[1] - x[0])
    low, high = 0.0, MOST
    for _ in range(50):
        middle = (low + high) / 2
        factor = math.exp(middle)
        worst = step * max(np.maximum(p - factor * q, 0.0).sum(), np.maximum(q - factor * p, 0.0).sum())
        low, high = (middle, high) if worst > delta else (low, middle)
    return high
