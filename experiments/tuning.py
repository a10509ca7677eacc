"""Equal tuning: every run of an experiment has the same number of tries, on validation data with a seed of its own.

[tune] on = [CASE, ...], validation = 0.2, seed = 1000, seeds = 1, metric = "local-test/accuracy-mean", untuned = [RUN]
[[run]] tries = [{...}, ...]     what the second, third, ... try puts on top of the run's own `set`, which is the first

A run's settings are those of the try with the highest mean of the metric over the cases of `on` and over so many
seeds from `seed` on, as one seed of a small fleet says little; they are then used for every case. A run named in
`untuned` has no tries and keeps its own. A try whose training diverges counts as 0. No test sample and no seed of the
comparison participates, and what the tries cost is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from covey.errors import SpoiledRunError, UserError
from covey.files import finite
from covey.runs.config import resolve
from experiments.execute import Announce, one_run, run_folder
from experiments.merge import merged
from experiments.origin import read_origin
from experiments.spec import Case, Experiment, Row


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What the tries of one run found and cost."""

    row: str
    best: Mapping[str, Any]  # what continues top of the run's own settings; empty: these are the best
    scores: Sequence[float]  # of every try, mean over the cases
    rounds: int
    bytes: float
    cpu_seconds: float

    def plain(self) -> dict[str, Any]:
        """As it is stored."""
        return {**vars(self), "best": dict(self.best), "scores": list(self.scores)}


def tries_of(row: Row) -> list[Mapping[str, Any]]:
    """What each try puts on top of the run's own settings."""
    return [{}, *row.tries]


def tuned_rows(experiment: Experiment) -> list[Row]:
    """The runs that are tuned: all but those that keep their own settings."""
    return [row for row in experiment.rows if row.name not in experiment.tune.get("untuned", ())]


def check_tries(experiment: Experiment) -> list[Case]:
    """The cases that are tuned on; one sentence where a run has more tries than another."""
    counts = {row.name: len(tries_of(row)) for row in tuned_rows(experiment)} or {"": 0}
    few, many = min(counts, key=lambda name: counts[name]), max(counts, key=lambda name: counts[name])
    if counts[few] != counts[many]:
        raise UserError(
            f"{experiment.file}: run {few!r} has {counts[few]} tries and {many!r} has {counts[many]}; "
            "tuning is equal where all have as many"
        )
    by_name = {case.name: case for case in experiment.cases}
    missing = [name for name in experiment.tune["on"] if name not in by_name]
    if missing:
        raise UserError(f"{experiment.file}: tune.on has {missing[0]!r}; allowed: {', '.join(by_name)}")
    return [by_name[name] for name in experiment.tune["on"]]


def tune_rows(experiment: Experiment, out: Path, live: Announce, say: Callable[[str], None]) -> list[Tuned]:
    """All tries of all runs; what is finished is not made again."""
    cases, metric = check_tries(experiment), experiment.tune.get("metric", "local-test/accuracy-mean")
    found = []
    for row in tuned_rows(experiment):
        scores, rounds, sent, cpu = [], 0, 0.0, 0.0
        for number, layer in enumerate(tries_of(row), start=1):
            values = []
            for case, seed in product(cases, range(int(experiment.tune.get("seeds", 1)))):
                config = resolve(try_tables(experiment, row, layer, case, seed))
                folder = run_folder(out / "tries", case, row, number, config)
                title = f"try {number} of {row.name} on {case.name}, validation data"
                try:
                    summary = one_run(config, folder, functools.partial(live, title), say)
                except SpoiledRunError as error:  # nothing a try finds could be worse
                    say(f"{title}: counts as 0: {error}")
                    values.append(0.0)
                    continue
                values.append(finite(summary.last.get(metric)) or 0.0)
                rounds += summary.rounds_done
                sent += summary.cost.bytes
                cpu += float(read_origin(folder).get("cpu_seconds", 0.0))
            scores.append(float(np.mean(values)))
        best = tries_of(row)[int(np.argmax(scores))]
        found.append(
            Tuned(
                row=row.name, best=best, scores=scores, rounds=rounds, bytes=sent, cpu_seconds=round(cpu, 1)
            )
        )
    return found


def try_tables(
    experiment: Experiment, row: Row, layer: Mapping[str, Any], case: Case, number: int = 0
) -> dict[str, Any]:
    """The configuration of one try: another seed, and a part of the training data in place of the test data."""
    tune = experiment.tune
    tables = experiment.tables(with_layer(row, layer), case, int(tune.get("seed", 1000)) + number)
    return merged(tables, {"data": {"validation": float(tune.get("validation", 0.2))}})


def with_layer(row: Row, layer: Mapping[str, Any]) -> Row:
    """The run with more settings on top of its own."""
    return replace(row, set=merged(row.set, layer))


def with_tuned(experiment: Experiment, found: Sequence[Mapping[str, Any]]) -> Experiment:
    """The experiment with the best try of every run in place of its own settings."""
    best = {one["row"]: one["best"] for one in found}
    return replace(experiment, rows=[with_layer(row, best.get(row.name, {})) for row in experiment.rows])
