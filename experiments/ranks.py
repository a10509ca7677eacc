"""Ranks of methods over fleets: their means with intervals, tests of all pairs, and the critical-difference picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from covey.report.figures import INK, SOFT, one_picture

Score = Mapping[str, Mapping[str, Sequence[float]]]  # fleet -> method -> one value per seed
DRAWS = 2000  # of the bootstrap


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A method's mean rank over fleets (1 is best); its 95 % interval by a paired bootstrap over fleets and seeds."""

    method: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two methods over all fleets: Wilcoxon's signed-rank test of their means per fleet, p adjusted by Holm."""

    better: str
    worse: str
    p: float


def common_methods(score: Score) -> list[str]:
    """The methods that every fleet has."""
    return [m for m in next(iter(score.values())) if all(m in per_fleet for per_fleet in score.values())]


def rank_table(score: Score, *, higher_is_better: bool = True) -> tuple[list[str], np.ndarray]:
    """The methods that every fleet has, and the rank of each (columns) on each fleet (rows); ties share their mean."""
    methods = common_methods(score)
    means = np.array([[float(np.mean(per_fleet[m])) for m in methods] for per_fleet in score.values()])
    return methods, ranked(means, higher_is_better)


def ranked(means: np.ndarray, higher_is_better: bool) -> np.ndarray:
    from scipy.stats import rankdata

    return np.asarray(rankdata(-means if higher_is_better else means, axis=1))


def ranks(score: Score, *, higher_is_better: bool = True, seed: int = 0) -> list[Rank]:
    """Mean ranks, from the best on; every draw of the bootstrap takes the same fleets and seeds for all methods."""
    methods, table = rank_table(score, higher_is_better=higher_is_better)
    rng, drawn = np.random.default_rng(seed), np.empty((DRAWS, len(methods)))
    fleets = [np.array([per_fleet[m] for m in methods], float) for per_fleet in score.values()]
    for draw in range(DRAWS):
        chosen = [fleets[k] for k in rng.integers(len(fleets), size=len(fleets))]
        means = [one[:, rng.integers(one.shape[1], size=one.shape[1])].mean(axis=1) for one in chosen]
        drawn[draw] = ranked(np.array(means), higher_is_better).mean(axis=0)
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    found = [
        Rank(method=m, mean=float(table[:, k].mean()), low=float(low[k]), high=float(high[k]))
        for k, m in enumerate(methods)
    ]
    return sorted(found, key=lambda rank: rank.mean)


def pairs(score: Score, *, higher_is_better: bool = True) -> list[Pair]:
    """All pairs of methods, the surest difference first; p is Holm's for the number of pairs."""
    from scipy.stats import wilcoxon

    methods = common_methods(score)
    means = {m: np.array([float(np.mean(fleet[m])) for fleet in score.values()]) for m in methods}
    found = []
    for a, b in combinations(methods, 2):
        gap = means[a] - means[b] if higher_is_better else means[b] - means[a]
        p = 1.0 if not gap.any() else float(wilcoxon(gap).pvalue)
        better, worse = (a, b) if np.median(gap) >= 0 else (b, a)
        found.append(Pair(better=better, worse=worse, p=p))
    found.sort(key=lambda pair: pair.p)
    largest, adjusted = 0.0, []
    for place, pair in enumerate(found):
        largest = max(largest, min(1.0, (len(found) - place) * pair.p))
        adjusted.append(Pair(better=pair.better, worse=pair.worse, p=largest))
    return adjusted


def critical_difference(methods: int, fleets: int) -> float:
    """Nemenyi's: mean ranks that differ by less may do so by chance (5 %): q sqrt(k (k + 1) / (6 N)) (Demsar, 2006)."""
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(0.95, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * fleets))


def bars(found: Sequence[Rank], width: float) -> list[tuple[int, int]]:
    """The longest runs of methods (first and last place) whose mean ranks lie within `width`."""
    runs: list[tuple[int, int]] = []
    for first in range(len(found)):
        last = max(k for k in range(first, len(found)) if found[k].mean - found[first].mean <= width)
        if last > first and (not runs or last > runs[-1][1]):
            runs.append((first, last))
    return runs


def draw_ranks(found: Sequence[Rank], fleets: int, path: Path) -> None:
    """Mean ranks with intervals, from the best down; a bar joins methods that the fleets cannot tell apart."""
    width = critical_difference(len(found), fleets)
    title = f"Mean rank over {fleets} fleets; joined: closer than the critical difference, {width:.2f}"
    with one_picture(path, (8.5, 1.2 + 0.32 * len(found)), title) as axes:
        for place, rank in enumerate(found):
            axes.plot([rank.low, rank.high], [place, place], color=SOFT, linewidth=1.2)
            axes.plot(rank.mean, place, "o", color=INK, markersize=5)
        joined = bars(found, width)
        for number, (first, last) in enumerate(joined):
            at = 0.4 - 0.25 * number
            axes.plot(
                [at, at], [first - 0.2, last + 0.2], color="#c8502b", linewidth=2.2, solid_capstyle="round"
            )
        axes.set_yticks(range(len(found)), [rank.method for rank in found])
        axes.set_xticks([1, *range(5, len(found) + 1, 5)])
        axes.set_xlim(0.15 - 0.25 * len(joined), max(rank.high for rank in found) + 0.5)
        axes.set_xlabel("mean rank with its 95 % interval (1 is best)")
        axes.invert_yaxis()
