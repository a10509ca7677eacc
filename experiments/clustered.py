"""Where clients have true clusters: a method beside the best of the others, from the stored results.

`python -m experiments.clustered [METHOD]` prints every such fleet, and how often the method is above the best.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from covey.report.seeds import Paired, paired
from experiments.noninferior import OTHERS
from experiments.result import read_stored
from experiments.scoreboard import ACCURACY, TUNED, Score, scores

# By table: its column, and its fleets of two or more true clusters: domains, alphabets, rotations, classes that are
# renamed, or shared with nobody of another cluster.
CLUSTERED = {
    "natural/suite": ("accuracy", ("drawers", "PACS")),
    "covey/scoreboard": (
        ACCURACY,
        (
            "rotated",
            "label-permuted",
            "label skew and rotated",
            "drift",
            "unseen clients",
            "unequal groups",
            "slow devices, 30 % away",
            "domains",
        ),
    ),
    "heterogeneity/benchmark": (
        ACCURACY,
        (
            *("P(x) weak", "P(x) strong", "P(x|y) weak", "P(x|y) strong", "P(y|x) weak", "P(y|x) strong"),
            *("P(y) and P(x)", "P(y) and P(y|x)", "unequal clusters", "drift", "unseen clients", "domains"),
        ),
    ),
    "covey/behind": ("accuracy", ("superclasses",)),
    "covey/unseen": (
        ACCURACY,
        (
            "SVHN, 10 clients of 300, half upside down",
            "digits, 12 clients: skew 1, 30 % label-permuted, noise",
            "text, 12 clients in four clusters, label-permuted",
        ),
    ),
}


@dataclass(frozen=True, kw_only=True)
class BesideBest:
    """A method on a fleet, and what it is ahead of the one of the others that has the highest mean."""

    fleet: str
    other: str
    ahead: Paired

    @property
    def is_sure(self) -> bool:
        return self.ahead.interval is not None and self.ahead.interval[0] > 0


def beside_best(score: Score, method: str, fleets: Sequence[str]) -> list[BesideBest]:
    """These fleets, each with the best of the others that were run there."""
    found = []
    for fleet in fleets:
        methods = {name: values for name, values in score[fleet].items() if name in OTHERS}
        best = max(methods, key=lambda name: float(np.mean(methods[name])))
        ahead = paired(methods[best], score[fleet][method])
        assert ahead is not None
        found.append(BesideBest(fleet=fleet, other=best, ahead=ahead))
    return found


def stored(name: str, column: str) -> dict[str, dict[str, list[float]]]:
    """The values of a table; where everybody was fine-tuned alike, that of FedAvg is the method of that name."""
    result = read_stored(name, "small")
    found = scores(result, column)
    for fleet, methods in scores(result, TUNED).items():
        found[fleet].setdefault("fine-tuned", methods["FedAvg"])
    return found


def main() -> None:
    method = [*sys.argv[1:], "covey"][0]
    rows = []
    for name, (column, fleets) in CLUSTERED.items():
        for one in beside_best(stored(name, column), method, fleets):
            low, high = one.ahead.interval or (one.ahead.difference,) * 2
            told = f"{100 * one.ahead.difference:+6.2f} [{100 * low:+.2f}, {100 * high:+.2f}]"
            print(f"{name:24} {one.fleet:54} {one.other:11} {told}, {one.ahead.seeds} seeds")
            rows.append(one)
    print(f"{method} beside the best other where there are true clusters: {in_words(rows)}")
    print(f"With five seeds or more: {in_words([one for one in rows if one.ahead.seeds >= 5])}")


def in_words(rows: Sequence[BesideBest]) -> str:
    """How often the method is ahead, and how often by more than chance."""
    above, sure = sum(one.ahead.difference > 0 for one in rows), sum(one.is_sure for one in rows)
    return f"above on {above} of {len(rows)} fleets, with the 95 % interval above 0 on {sure}."


if __name__ == "__main__":
    main()
