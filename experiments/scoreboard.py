"""Methods against fleets, from a stored result: who is first or not significantly worse, and the picture of it.

`python -m experiments.scoreboard FOLDER` draws natural/suite (natural.png) and covey/scoreboard (scoreboard.png).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from covey.report.figures import INK, one_picture
from covey.report.seeds import Bound, may_be_equal
from experiments.result import read_stored
from experiments.stored_numbers import from_json

# The columns of covey/scoreboard that say who is first.
ACCURACY, TUNED, SECONDS = "accuracy, mean over clients", "fine-tuned alike", "seconds to 90 % of the best"

Score = Mapping[str, Mapping[str, Sequence[float]]]  # fleet -> method -> one value per seed


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One fleet: its methods from the best mean to the worst, and those whose difference to the best may be chance."""

    fleet: str
    order: tuple[str, ...]
    level: frozenset[str]


def scores(result: Mapping[str, Any], column: str) -> dict[str, dict[str, list[float]]]:
    """The values of a column by fleet and method; a target that was missed counts with its bound."""
    found: dict[str, dict[str, list[float]]] = {}
    for cell in result["cells"]:
        if cell["column"] == column:
            numbers = [from_json(value) for value in cell["values"]]
            values = [np.inf if isinstance(n, Bound) else np.nan if n is None else float(n) for n in numbers]
            found.setdefault(cell["case"], {})[cell["row"]] = values
    return found


def chance_margin(methods: Mapping[str, Sequence[float]]) -> float:
    """By how much two methods' means on a fleet may differ by chance, 95 %, from the seeds of all methods together.

    t sqrt(2 MSE / seeds), MSE what is left of the values after each method's and each seed's mean.
    """
    from scipy.stats import t

    table = np.array(list(methods.values()), dtype=np.float64)
    free = (table.shape[0] - 1) * (table.shape[1] - 1)
    if free < 1 or not np.isfinite(table).all():
        return np.inf
    left = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    return float(t.ppf(0.975, free) * np.sqrt(2 * np.square(left).sum() / free / table.shape[1]))


def standings(score: Score, *, higher_is_better: bool = True, few_seeds: bool = False) -> list[Standing]:
    """The order of the methods on every fleet.

    A method is level with the best when the 95 % interval of the paired difference over seeds holds 0. With
    `few_seeds`, which make such intervals wide, it must also be within `chance_margin` of the best.
    """
    found = []
    for fleet, methods in score.items():
        sign = -1 if higher_is_better else 1
        order = sorted(methods, key=lambda name: sign * float(np.mean(methods[name])))
        best = np.array(methods[order[0]])
        margin = chance_margin(methods) if few_seeds else np.inf
        level = {
            name
            for name in order
            if may_be_equal(best, np.array(methods[name]))
            and (name == order[0] or abs(float(np.mean(methods[name]) - best.mean())) <= margin)
        }
        found.append(Standing(fleet=fleet, order=tuple(order), level=frozenset(level)))
    return found


def in_words(places: Sequence[Standing], method: str, what: str) -> str:
    """How often the method is first, level with the first, or behind."""
    first = [place.fleet for place in places if place.order[0] == method]
    level = [place.fleet for place in places if method in place.level and place.order[0] != method]
    behind = [place.fleet for place in places if method not in place.level]
    alone = [place.fleet for place in places if place.level == {method}]
    text = f"In {what}, `{method}` is first on {len(first)} of {len(places)} fleets"
    text += f", significantly so on {len(alone)} of them" if alone else ""
    text += f"; it is not significantly behind the first on {', '.join(level)}" if level else ""
    return text + (f"; it is behind on {', '.join(behind)}." if behind else ".")


def against_the_best(
    score: Score, method: str, words: Callable[[float], str], *, higher_is_better: bool = True
) -> dict[str, list[str]]:
    """For each fleet the best of the other methods, and the method: bold where no other may equal it."""
    found = {}
    for place in standings(score, higher_is_better=higher_is_better):
        other = next(name for name in place.order if name != method)
        own, best = (float(np.mean(score[place.fleet][name])) for name in (method, other))
        mine = f"**{words(own)}**" if place.level == {method} else words(own)
        found[place.fleet] = [f"{words(best)} ({other})" if np.isfinite(best) else "never", mine]
    return found


def draw_scoreboard(score: Score, path: Path, title: str, *, few_seeds: bool = False) -> None:
    """A heat map: methods by their mean over fleets; a frame marks the best of a fleet and who is level with it."""
    fleets = list(score)
    methods = sorted(
        next(iter(score.values())), key=lambda m: -float(np.mean([np.mean(score[f][m]) for f in fleets]))
    )
    means = np.array([[float(np.mean(score[f][m])) for f in fleets] for m in methods])
    behind = means.max(axis=0) - means
    places = standings(score, few_seeds=few_seeds)
    with one_picture(path, (1.5 + 0.95 * len(fleets), 1.9 + 0.42 * len(methods)), title) as axes:
        axes.imshow(np.minimum(behind, 0.2), cmap="YlGnBu_r", aspect="auto", vmin=0, vmax=0.26)
        for row, method in enumerate(methods):
            for column, place in enumerate(places):
                is_level = method in place.level
                axes.text(
                    column,
                    row,
                    f"{100 * means[row, column]:.1f}",
                    ha="center",
                    va="center",
                    fontsize=9,
                    color="white" if behind[row, column] < 0.08 else INK,
                    fontweight="bold" if is_level else "normal",
                )
                if is_level:
                    corners = np.array(
                        [[-0.47, -0.45], [0.47, -0.45], [0.47, 0.45], [-0.47, 0.45], [-0.47, -0.45]]
                    )
                    axes.plot(column + corners[:, 0], row + corners[:, 1], color="#c8502b", linewidth=1.8)
        axes.set_xticks(range(len(fleets)), [wrapped(fleet) for fleet in fleets], fontsize=8)
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(methods)), methods)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for side in axes.spines.values():
            side.set_visible(False)


def wrapped(text: str, width: int = 12) -> str:
    """A name in short lines."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def federated(score: Score) -> Score:
    """The methods that compete: `centralized` has everybody's data."""
    return {
        fleet: {name: values for name, values in methods.items() if name != "centralized"}
        for fleet, methods in score.items()
    }


def main() -> None:
    folder = Path(sys.argv[1])
    natural = federated(scores(read_stored("natural/suite", "small"), "accuracy"))
    title = "Natural clients: accuracy in % over all test rows; framed: best or level"
    draw_scoreboard(natural, folder / "natural.png", title)
    print(in_words(standings(natural), "covey", "accuracy on natural clients"))
    result = read_stored("covey/scoreboard", "small")
    accuracy, tuned, seconds = (scores(result, column) for column in (ACCURACY, TUNED, SECONDS))
    title = "Accuracy in %, mean over clients on their own data; framed: best or level"
    draw_scoreboard(accuracy, folder / "scoreboard.png", title)
    print(in_words(standings(accuracy), "covey", "accuracy"))
    print(in_words(standings(tuned), "covey", "accuracy after the same fine-tuning for all"))
    print(in_words(standings(seconds, higher_is_better=False), "covey", "seconds to 90 % of the best"))


if __name__ == "__main__":
    main()
