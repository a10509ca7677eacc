"""Numbers of several seeds: those that were not reached, comparisons seed by seed, and all of them in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

Comparison = Literal["", "ratio", "difference"]
LEVEL = 0.05  # of every test; one less it is that of every interval
TESTED = 3  # seeds from which on a difference is tested: the spread of two says next to nothing
SEED_ROUNDING = 1e-9  # of the numbers themselves, below which their differences are equal


@dataclass(frozen=True)
class Bound:
    """A number that is only known to lie over (or under) a value: what a target costs that was not reached."""

    value: float
    side: Literal["over", "under"] = "over"

    def opposite(self) -> Bound:
        return Bound(self.value, "under" if self.side == "over" else "over")


Number = float | Bound | None  # None: there is no such number


def value_of(number: float | Bound) -> float:
    return number.value if isinstance(number, Bound) else number


# ------------------------------------------------------------------------------------------ seed by seed


def ratios(column: Sequence[Number], base: Sequence[Number]) -> list[Number]:
    """Each number divided by its partner."""
    return [_compared(a, b, lambda x, y: x / y) if _not_zero(b) else None for a, b in _pairs(column, base)]


def differences(column: Sequence[Number], base: Sequence[Number]) -> list[Number]:
    """Each number less its partner."""
    return [_compared(a, b, lambda x, y: x - y) for a, b in _pairs(column, base)]


def _pairs(column: Sequence[Number], base: Sequence[Number]) -> Sequence[tuple[Number, Number]]:
    return list(zip(column, base, strict=True))


def _not_zero(number: Number) -> bool:
    return number is not None and value_of(number) != 0


def _compared(a: Number, b: Number, how: Callable[[float, float], float]) -> Number:
    """Grows with a and falls with b; where both are bounds of the same side, nothing is known."""
    if a is None or b is None:
        return None
    value = how(value_of(a), value_of(b))
    sides = {
        bound.side for bound in (a, b.opposite() if isinstance(b, Bound) else b) if isinstance(bound, Bound)
    }
    if not sides:
        return value
    return Bound(value, sides.pop()) if len(sides) == 1 else None


def interval(numbers: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """The 95 % confidence interval of the mean (Student's t)."""
    from scipy.stats import t

    half = float(t.ppf(0.975, len(numbers) - 1)) * float(np.std(numbers, ddof=1)) / math.sqrt(len(numbers))
    return float(np.mean(numbers)) - half, float(np.mean(numbers)) + half


def interval_within(
    numbers: Sequence[float] | np.ndarray, low: float | None = None, high: float | None = None
) -> tuple[float, float]:
    """The 95 % interval of a mean that cannot leave low..high (None: no end on that side).

    Student's t on the scale on which the range has no end: the logit between two ends, the logarithm above one. There
    the mean's standard error is divided by the slope of that scale, so that with little spread it is `interval`.
    """
    ends = interval(numbers)
    mean, half = float(np.mean(numbers)), (ends[1] - ends[0]) / 2
    if low is None or half == 0 or mean <= low or (high is not None and mean >= high):
        return ends
    if high is None:
        factor = math.exp(min(half / (mean - low), 700))
        return low + (mean - low) / factor, low + (mean - low) * factor
    place = (mean - low) / (high - low)
    odds, turn = math.log(place / (1 - place)), half / ((high - low) * place * (1 - place))
    return low + (high - low) * _logistic(odds - turn), low + (high - low) * _logistic(odds + turn)


def _logistic(odds: float) -> float:
    return 1 / (1 + math.exp(min(-odds, 700)))


@dataclass(frozen=True, kw_only=True)
class Paired:
    """One method against another over the same seeds: the mean difference, its 95 % interval, and a paired t-test.

    Where several methods are tested against the same one, `p` is adjusted by Holm and the interval is as much wider as
    that test asks, so that it leaves 0 out exactly where the two are distinguishable. With fewer than three seeds
    nothing is tested, and `p` is None. Where all seeds have the same difference there is no spread to make an interval
    of: it is None, and `p` is that of the sign test, 2 / 2^seeds.
    """

    difference: float
    interval: tuple[float, float] | None
    p: float | None
    seeds: int

    @property
    def distinguishable(self) -> bool:
        """Whether the difference is significant: chance alone would show such a one in less than 1 of 20 studies."""
        return self.p is not None and self.p < LEVEL


def paired(first: Sequence[float | None], other: Sequence[float | None]) -> Paired | None:
    """The other method less the first, seed by seed; None where fewer than two seeds have both numbers."""
    from scipy.stats import t

    both = [(a, b) for a, b in zip(first, other, strict=True) if a is not None and b is not None]
    known = np.array([pair for pair in both if np.isfinite(pair).all()]).reshape(-1, 2)
    gaps = known[:, 1] - known[:, 0]
    if len(gaps) < 2:
        return None
    mean, spread = float(gaps.mean()), float(gaps.std(ddof=1))
    if len(gaps) < TESTED:
        return Paired(difference=mean, interval=None, p=None, seeds=len(gaps))
    size = float(np.abs(known).max())
    if np.ptp(gaps) <= SEED_ROUNDING * size:
        p = 1.0 if abs(mean) <= SEED_ROUNDING * size else 2.0 ** (1 - len(gaps))
        return Paired(difference=mean, interval=None, p=p, seeds=len(gaps))
    p = 2 * float(t.sf(abs(mean) / (spread / math.sqrt(len(gaps))), len(gaps) - 1))
    return Paired(difference=mean, interval=interval(gaps), p=p, seeds=len(gaps))


def holm(tests: Sequence[Paired | None]) -> list[Paired | None]:
    """The tests as they count when all of them are made at once (Holm, 1979): from the smallest p on.

    The first of m is tested at 0.05 / m, the next at 0.05 / (m - 1), and so on until one is not significant, at
    whose level the rest stay; each interval is that of its test's level, never below 95 %.
    """
    order = sorted((one.p, place) for place, one in enumerate(tests) if one is not None and one.p is not None)
    adjusted, largest, count = list(tests), 0.0, len(order)
    for rank, (p, place) in enumerate(order):
        if largest < LEVEL:
            count = len(order) - rank
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        one = tests[place]
        adjusted[place] = None if one is None else replace(widened(one, count), p=largest)
    return adjusted


def widened(test: Paired, count: int) -> Paired:
    """With the interval of a test at a `count`-th of the level."""
    from scipy.stats import t

    if test.interval is None:
        return test
    usual, here = (float(t.ppf(1 - LEVEL / (2 * n), test.seeds - 1)) for n in (1, count))
    half = (test.interval[1] - test.interval[0]) / 2 * here / usual
    return replace(test, interval=(test.difference - half, test.difference + half))


def may_be_equal(best: np.ndarray, other: np.ndarray) -> bool:
    """Whether the paired difference may be 0; a value that was never reached is different."""
    if not (np.isfinite(best).all() and np.isfinite(other).all()):
        return bool(np.array_equal(best, other))
    if np.array_equal(best, other):
        return True
    test = paired(other.tolist(), best.tolist())
    return test is not None and not test.distinguishable


# ------------------------------------------------------------------------------------------ in words


def number_in_words(values: Sequence[Number], comparison: Comparison = "") -> str:
    """Mean and spread over seeds; a comparison with its 95 % interval (ratios: geometric mean).

    Seeds that did not reach a target count with what their whole run cost, so the mean is "over" that. "-" where no
    seed has a number, and how many have one if not all.
    """
    known = [value for value in values if value is not None]
    sides = {value.side for value in known if isinstance(value, Bound)}
    if not known or len(sides) > 1:
        return "-"
    numbers = np.array([value_of(value) for value in known])
    mean = float(np.exp(np.log(numbers).mean())) if comparison == "ratio" else float(numbers.mean())
    text = f"{sides.pop()} {short(mean)}" if sides else short(mean)
    exact = sum(not isinstance(value, Bound) for value in known)
    if exact == len(known) and np.ptp(numbers) > 1e-12 * np.abs(numbers).max():  # more than rounding
        text += spread(numbers, comparison)
    return text + (f" ({exact} of {len(values)})" if exact < len(values) else "")


def spread(numbers: np.ndarray, comparison: Comparison) -> str:
    """The standard deviation, or the interval of a comparison."""
    if not comparison:
        return f" ± {two_digits(float(numbers.std(ddof=1)))}"
    ends = interval(np.log(numbers) if comparison == "ratio" else numbers)
    low, high = np.exp(ends) if comparison == "ratio" else ends
    return f" [{two_digits(float(low))}, {two_digits(float(high))}]"


def two_digits(number: float) -> str:
    """A spread: two significant digits, from 10 on all digits before the point, never as a power of ten unless tiny."""
    return f"{number:,.0f}" if abs(number) >= 10 else f"{number:.2g}"


def short(number: float) -> str:
    """A number with four significant digits, whole numbers in full."""
    if float(number).is_integer() and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.1f}" if abs(number) >= 1000 else f"{number:.4g}"
