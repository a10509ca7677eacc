"""Never worse: a method beside every other one on every fleet, from a stored result.

Non-inferior by a margin m: the one-sided paired t test over seeds refuses that the method is worse by m or more,

    t = (mean(d) + m) / (sd(d) / sqrt(n)),  d_s = method's accuracy - the other's, n - 1 degrees of freedom,

at 5 % after Holm's correction over all pairs of a fleet and another method.
`python -m experiments.noninferior PAPER/TABLE [SCALE] [METHOD]` prints every pair.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.result import read_stored, seeds_in_words
from experiments.scoreboard import Score, scores

MARGIN = 0.005
LEVEL = 0.05
COLUMN = "accuracy"
# What the method is to be held against; `centralized` is no federated method, and shown only.
OTHERS = ("FedAvg", "fine-tuned", "CFIC", "IFCA", "Ditto", "FedPer", "local")


@dataclass(frozen=True, kw_only=True)
class Against:
    """A method against another one on a fleet: the mean difference, and Holm's p that it is worse by the margin."""

    fleet: str
    other: str
    difference: float
    p: float

    @property
    def is_shown(self) -> bool:
        return self.p < LEVEL


def p_of(difference: np.ndarray, margin: float) -> float:
    """The one-sided paired t test that the method is worse by `margin` or more."""
    from scipy.stats import t

    spread = float(difference.std(ddof=1)) / math.sqrt(len(difference))
    above = float(difference.mean()) + margin
    if spread == 0:
        return 0.0 if above > 0 else 1.0
    return float(t.sf(above / spread, len(difference) - 1))


def pairs(score: Score, method: str, others: Sequence[str], margin: float = MARGIN) -> list[Against]:
    """All fleets and other methods, the surest first; p is Holm's for the number of pairs."""
    found = []
    for fleet, methods in score.items():
        for other in others:
            if other in methods and other != method:
                gap = np.array(methods[method]) - np.array(methods[other])
                if np.isfinite(gap).all():
                    p = p_of(gap, margin)
                    found.append(Against(fleet=fleet, other=other, difference=float(gap.mean()), p=p))
    found.sort(key=lambda one: one.p)
    largest, adjusted = 0.0, []
    for place, one in enumerate(found):
        largest = max(largest, min(1.0, (len(found) - place) * one.p))
        adjusted.append(replace(one, p=largest))
    return adjusted


def sentence(found: Sequence[Against], method: str, seeds: str, margin: float = MARGIN) -> str:
    """What the test says, and every pair of which it does not."""
    fleets = list(dict.fromkeys(one.fleet for one in sorted(found, key=lambda one: one.fleet)))
    open_ = [one for one in found if not one.is_shown]
    clear = [fleet for fleet in fleets if fleet not in {one.fleet for one in open_}]
    text = (
        f"Non-inferior by {100 * margin:g} point{'' if margin == 0.01 else 's'} of accuracy (paired over {seeds}"
        f", one-sided t, Holm over {len(found)} pairs): `{method}` is shown to be so in "
        f"{len(found) - len(open_)} of {len(found)} pairs, and against all on {len(clear)} of {len(fleets)} fleets"
        f"{' (' + ', '.join(clear) + ')' if clear else ''}."
    )
    behind = sorted((one for one in open_ if one.difference < 0), key=lambda one: one.difference)
    level = [one for one in open_ if one.difference >= 0]
    if behind:
        told = (f"{one.other} on {one.fleet} ({100 * one.difference:+.2f})" for one in behind)
        text += " Not shown, with a mean below the other's: " + ", ".join(told) + "."
    if level:
        told = (f"{one.other} on {one.fleet} ({100 * one.difference:+.2f})" for one in level)
        text += " Not shown, with a mean above: " + ", ".join(told) + "."
    return text


def told(name: str, scale: str, method: str) -> str:
    """The sentence of a stored result."""
    result = read_stored(name, scale)
    return sentence(pairs(scores(result, COLUMN), method, OTHERS), method, seeds_in_words(result))


def main() -> None:
    name, scale, method = [*sys.argv[1:], *("", "small", "covey")[len(sys.argv) - 1 :]][:3]
    result = read_stored(name, scale)
    for one in sorted(pairs(scores(result, COLUMN), method, OTHERS), key=lambda one: (one.fleet, one.other)):
        mark = "shown" if one.is_shown else "not shown"
        print(f"{one.fleet:18} {one.other:12} {100 * one.difference:+6.2f} points  p {one.p:.3f}  {mark}")
    print(told(name, scale, method))


if __name__ == "__main__":
    main()
