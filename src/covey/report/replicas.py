"""The same configurations with several seeds: means, 95 % intervals, and paired tests against the first."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.arrays import Array
from covey.folder.read import RunView
from covey.folder.rows import Rows
from covey.report.payload import kept_rounds
from covey.report.seeds import SEED_ROUNDING, TESTED, Paired, holm, interval_within, paired
from covey.report.table import (
    TableColumn,
    best_rows,
    headline_metric,
    known_metrics,
    lowest,
    target_words,
    targets_of,
)
from covey.report.thin import short
from covey.report.wording import (
    NO_VALUE,
    is_share,
    metric_title,
    show_bytes,
    show_count,
    show_seconds,
    show_value,
)
from covey.training.metrics import Metrics, higher_is_better, split_name

FEW = 5  # seeds from which on an interval is drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class Replicas:
    """Runs by label, one per seed; `columns` are the settings of each label where a table shows them."""

    runs: Mapping[str, Sequence[RunView]]
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def firsts(self) -> list[RunView]:
        """The first seed of every label."""
        return [runs[0] for runs in self.runs.values()]

    @property
    def every(self) -> list[RunView]:
        return [run for runs in self.runs.values() for run in runs]

    @property
    def seeds(self) -> list[int]:
        """All seeds that any label has."""
        return sorted({run.summary.seed for run in self.every})

    @property
    def metric(self) -> str:
        return headline_metric(self.every)

    def values(self, label: str, read: Callable[[RunView], float | None]) -> list[float | None]:
        """A number of every seed, None where the label has no run with that seed."""
        found = {run.summary.seed: read(run) for run in self.runs[label]}
        return [None if (v := found.get(seed)) is None or not math.isfinite(v) else v for seed in self.seeds]

    def last(self, label: str, metric: str) -> list[float | None]:
        return self.values(label, lambda run: run.summary.last.get(metric))

    def against_first(self, metric: str) -> list[Paired | None]:
        """Every label against the first one, over the same seeds; p as it counts for all of them at once."""
        labels = list(self.runs)
        first = self.last(labels[0], metric)
        return [None, *holm([paired(first, self.last(label, metric)) for label in labels[1:]])]

    def in_words(self) -> str:
        """How many seeds, for the head of a table."""
        count = len(self.seeds)
        return "1 seed" if count == 1 else f"mean and 95 % interval over {count} seeds"


def replica_columns(replicas: Replicas, metric: str | None = None) -> list[TableColumn]:
    """One row per label: the last value, the worst 10 %, what the target took, the costs, and the paired test."""
    asked, metric = metric, metric or replicas.metric
    metrics, labels = known_metrics(replicas.every), list(replicas.runs)
    highest = higher_is_better(metric, metrics)

    def measured(head: str, name: str) -> TableColumn:
        numbers = [replicas.last(label, name) for label in labels]
        cells = tuple(mean_words(values, name, metrics) for values in numbers)
        return TableColumn(
            head=head, cells=cells, best=best_rows(list(map(mean_of, numbers)), highest=highest)
        )

    columns = [*name_columns(replicas), measured("last", metric)]
    split, base, _ = split_name(metric)
    if split == "local-test":
        columns.append(measured("worst\n10%", f"{split}/{base}-worst10"))
    for about, target in targets_of(replicas.every, asked):
        words = target_words(about, target, metrics, metric)
        for head, unit, show in (
            (f"{words}\nrounds", "round", show_count),
            ("\ntime", "seconds", show_seconds),
            ("\nbytes", "bytes", show_bytes),
        ):
            numbers = [replicas.values(label, reached(about, target, unit)) for label in labels]
            cells = tuple(reached_words(values, show) for values in numbers)
            whole = [mean_of(values) if None not in values else None for values in numbers]
            columns.append(TableColumn(head=head, cells=cells, best=best_rows(whole, highest=False)))
    for head, read, show in (
        ("all\nbytes", lambda run: float(run.summary.cost.bytes), show_bytes),
        ("all\ntime", lambda run: run.summary.cost.seconds, show_seconds),
    ):
        columns.append(lowest(head, [mean_of(replicas.values(label, read)) for label in labels], show))
    return columns + against_columns(replicas, metric, is_share(metric, metrics))


def name_columns(replicas: Replicas) -> list[TableColumn]:
    """What the rows are called: methods, or the settings that a sweep goes over."""
    if not replicas.columns:
        return [TableColumn(head="method", cells=tuple(replicas.runs), right=False)]
    heads = dict.fromkeys(head for settings in replicas.columns.values() for head in settings)
    return [
        TableColumn(head=head, cells=tuple(replicas.columns[label].get(head, "") for label in replicas.runs))
        for head in heads
    ]


def against_columns(replicas: Replicas, metric: str, share: bool) -> list[TableColumn]:
    """The paired test against the first row, where there are seeds to pair."""
    tests = replicas.against_first(metric)
    if len(replicas.seeds) < 2 or len(tests) < 2:
        return []
    first = next(iter(replicas.runs))
    cells = tuple("" if place == 0 else paired_words(test, share) for place, test in enumerate(tests))
    return [TableColumn(head=f"against\n{first}", cells=cells, right=False)]


def against_words(replicas: Replicas) -> str:
    """What the last column is, in a sentence; nothing where there is none."""
    rows = len(replicas.runs) - 1
    if len(replicas.seeds) < 2 or not rows:
        return ""
    first = next(iter(replicas.runs))
    if len(replicas.seeds) < TESTED:
        return f"Against {first}: the mean paired difference over the same seeds; tested with {TESTED} seeds and more."
    adjusted = "95 % interval" if rows == 1 else f"Holm-adjusted 95 % interval ({rows} comparisons)"
    return (
        f"Against {first}: mean paired difference over the same seeds, {adjusted} and p-value of the paired "
        't-test; "not significant": p is 0.05 or more.'
    )


def verdict(replicas: Replicas) -> str:
    """What was found, in one sentence: which row is best by the main number, and by how much; "" for a single row."""
    labels, metric = list(replicas.runs), replicas.metric
    metrics = known_metrics(replicas.every)
    highest = higher_is_better(metric, metrics)
    means = [mean_of(replicas.last(label, metric)) for label in labels]
    known = [place for place, value in enumerate(means) if value is not None]
    if highest is None or len(known) < 2:
        return ""
    order = sorted(known, key=lambda place: means[place] or 0.0, reverse=highest)
    best, base = order[0], 0 if order[0] and 0 in known else order[1]
    title, share = metric_title(metric), is_share(metric, metrics)
    start = f"{labels[best]} has the {'highest' if highest else 'lowest'} {title}"
    level = [labels[place] for place in order[1:] if means[place] == means[best]]
    if level:
        return f"{start}, and so {'has' if len(level) == 1 else 'have'} {', '.join(level)}."
    if len(replicas.seeds) == 1:
        by = abs((means[best] or 0.0) - (means[base] or 0.0))
        above = f"{100 * by:.1f} points" if share else f"{by:.3g}"
        return f"{start}, {above} from {labels[base]}; one seed, not tested."
    test = paired(replicas.last(labels[base], metric), replicas.last(labels[best], metric))
    if base == 0:  # adjusted for all comparisons with the first, as in the table
        test = replicas.against_first(metric)[best]
    return f"{start}; against {labels[base]}: {paired_words(test, share)}."


def odd_words(views: Sequence[RunView]) -> str:
    """In how many of several runs clients stood out, in a sentence; their reports say who."""
    odd = sum("odd clients" in view.summary.notes or view.summary.refused.count > 0 for view in views)
    if not odd:
        return ""
    return (
        f"In {odd} of {len(views)} runs some clients' updates stand out or were refused (other data, a fault, a lie): "
        "the report says whose."
    )


def mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def interval_of(values: Sequence[float] | Array, name: str, metrics: Metrics) -> tuple[float, float]:
    """The 95 % interval of a metric's mean, inside the metric's range: 0..1 of a share, above 0 of an error."""
    if is_share(name, metrics):
        return interval_within(values, 0.0, 1.0)
    is_error = higher_is_better(name, metrics) is False and min(values) > 0
    return interval_within(values, 0.0) if is_error else interval_within(values)


def mean_words(values: Sequence[float | None], name: str, metrics: Metrics) -> str:
    """A mean and its 95 % interval: 93.41 [92.10, 94.52]%; of equal numbers there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return NO_VALUE
    mean = float(np.mean(known))
    if len(known) == 1:
        return show_value(name, mean, metrics)
    if np.ptp(known) <= SEED_ROUNDING * abs(mean):
        text = f"{show_value(name, mean, metrics)} with each of {len(known)} seeds"
    else:
        low, high = interval_of(known, name, metrics)
        text = f"{mean:.4g} [{low:.3g}, {high:.3g}]"
        if is_share(name, metrics):
            text = f"{100 * mean:.2f} [{100 * low:.2f}, {100 * high:.2f}]%"
    return text + (f" ({len(known)} of {len(values)})" if len(known) < len(values) else "")


def reached(metric: str, target: float, unit: str) -> Callable[[RunView], float | None]:
    return lambda run: getattr(run.to_target(metric, target), unit)


def reached_words(values: Sequence[float | None], show: Callable[[float | None], str]) -> str:
    """The mean over the seeds that reached the target, and how many did where not all."""
    known = [value for value in values if value is not None]
    text = show(mean_of(values))
    return text if len(known) in (0, len(values)) else f"{text} ({len(known)} of {len(values)})"


def paired_words(test: Paired | None, share: bool) -> str:
    """The difference with its interval; whether it is significant is said in words."""
    if test is None:
        return NO_VALUE
    times, digits, unit = (100, ".2f", " points") if share else (1, ".3g", "")
    words = f"{times * test.difference:+{digits}}"
    if test.interval is not None:
        low, high = test.interval
        if share:  # shares differ by 100 points at most
            low, high = max(-1.0, low), min(1.0, high)
        words += f" [{times * low:+{digits}}, {times * high:+{digits}}]"
    words += unit
    if test.p is None:
        return f"{words}, {test.seeds} seeds: not tested"
    if test.interval is None:
        words += f" with each of {test.seeds} seeds"
    if not test.distinguishable:
        return f"{words}, not significant"
    return f"{words}, p {'< 0.001' if test.p < 0.001 else f'= {test.p:.2g}'}"


# ------------------------------------------------------------------------------------------ curves


def mean_curves(runs: Sequence[RunView], names: Sequence[str]) -> dict[str, Any]:
    """Curves of one label: the mean over seeds at the rounds of the first, with the interval as a band.

    With fewer than `FEW` seeds a band would say more than they know: then the single runs are given in its place.
    """
    rounds, metrics = kept_rounds(runs[0]), known_metrics(runs)
    curves = {}
    for name in names:
        table = np.array([at_rounds(run.rows, name, rounds) for run in runs])
        known = np.isfinite(table).all(axis=0)
        mean, low, high = (np.full(len(rounds), np.nan) for _ in range(3))
        mean[known] = table[:, known].mean(axis=0)
        if len(runs) < FEW:
            curves[name] = {"all": short(mean), "seeds": {"runs": [short(run) for run in table]}}
            continue
        ends = [interval_of(column, name, metrics) for column in table[:, known].T]
        low[known], high[known] = np.array(ends).reshape(-1, 2).T
        curves[name] = {"all": short(mean), "seeds": {"low": short(low), "high": short(high)}}
    return curves


def at_rounds(rows: Rows, name: str, rounds: NDArray[np.int64]) -> Array:
    """A curve's value at each of these rounds; a run that stopped early keeps its last one."""
    curve = rows.overall(name)
    if not len(curve):
        return np.full(len(rounds), np.nan)
    known = dict(zip(curve.round.tolist(), curve.value.tolist(), strict=True))
    end = int(curve.round[-1])
    return np.array([known.get(r, float(curve.value[-1]) if r > end else np.nan) for r in rounds.tolist()])
