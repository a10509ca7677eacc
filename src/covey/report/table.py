"""Tables for the terminal (rich) and for documents (Markdown), from the same cells."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from covey.core.ledger import Cost
from covey.folder.read import RunView
from covey.folder.summary import MEASURING
from covey.report.wording import (
    metric_title,
    show_bytes,
    show_count,
    show_seconds,
    show_target,
    show_value,
    unlike_labels,
)
from covey.training.metrics import Metrics, higher_is_better, split_name

PREFERRED = (
    "local-test/accuracy-mean",
    "global-test/accuracy",
    "local-test/mse-mean",
    "global-test/mse",
    "local-test/loss-mean",
    "global-test/loss",
)


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """A head, one text per row, and which rows hold the best value."""

    head: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()
    right: bool = True


def run_labels(runs: Sequence[RunView]) -> list[str]:
    """One label per run, none twice."""
    return unlike_labels([run.label for run in runs], [f"seed {run.summary.seed}" for run in runs])


# The methods that are compared most have a colour of their own in every picture; 7 is grey, for what has no group.
USUAL_HUES = {
    "fedavg": 0,
    "covey": 6,
    "local": 9,
    "cafa": 1,
    "hierarchical": 2,
    "embedding": 3,
    "haccs": 4,
    "cfic": 5,
}
HUES_OF_RUNS = 10


def hues_of(labels: Sequence[str]) -> list[int]:
    """The place of each label's colour: a method's own wherever it is free, the first free one for the others."""
    taken = {USUAL_HUES[label] for label in labels if label in USUAL_HUES}
    free = [place for place in range(HUES_OF_RUNS) if place not in taken and place != 7] or [7]
    others = [label for label in labels if label not in USUAL_HUES]
    return [
        USUAL_HUES.get(label, free[others.index(label) % len(free)] if label in others else 7)
        for label in labels
    ]


def headline_metric(runs: Sequence[RunView]) -> str:
    """What a comparison is about: the preferred metric that all have, whatever a target is about."""
    shared = [name for name in runs[0].summary.last if all(name in run.summary.last for run in runs)]
    return next((name for name in (*PREFERRED, *shared) if name in shared), PREFERRED[0])


def targets_of(runs: Sequence[RunView], only: str | None = None) -> list[tuple[str, float]]:
    """Every target that any run has (`only`: for that metric), in the order of the runs: of what, and how much."""
    found = dict.fromkeys((t.metric, t.target) for run in runs for t in run.summary.targets)
    return [(metric, target) for metric, target in found if only in (None, metric)]


def target_words(metric: str, target: float, metrics: Metrics, headline: str) -> str:
    """The head of what a target took; it says on what, where that is not what the table is about."""
    words = f"to {show_target(metric, target, metrics)}"
    return words if metric == headline else f"{words} {metric_title(metric)}"


def best_rows(values: Sequence[float | None], *, highest: bool | None) -> frozenset[int]:
    """Which rows hold the best value; nothing stands out in a table of one row, or where no direction is known."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(values) < 2 or not known or highest is None:
        return frozenset()
    best = max(known) if highest else min(known)
    return frozenset(place for place, value in enumerate(values) if value == best)


def known_metrics(runs: Sequence[RunView]) -> Metrics:
    """The metrics of all runs of a table."""
    return Metrics(metric for run in runs for metric in run.metrics.known.values())


def summary_columns(runs: Sequence[RunView], metric: str | None = None) -> list[TableColumn]:
    """One row per run: best, last, worst 10%, what the target took, all bytes, seconds on the run's clock."""
    asked, metric = metric, metric or headline_metric(runs)
    metrics = known_metrics(runs)
    highest = higher_is_better(metric, metrics)

    def measured(head: str, name: str, values: Sequence[float | None]) -> TableColumn:
        cells = tuple(show_value(name, value, metrics) for value in values)
        return TableColumn(head=head, cells=cells, best=best_rows(values, highest=highest))

    split, base, _ = split_name(metric)
    best = [found.value if (found := run.summary.best.get(metric)) else None for run in runs]
    columns = [
        TableColumn(head="method", cells=tuple(run_labels(runs)), right=False),
        measured("best", metric, best),
        measured("last", metric, [run.summary.last.get(metric) for run in runs]),
    ]
    if split == "local-test":  # one row is about one split
        worst = f"{split}/{base}-worst10"
        columns.append(measured("worst\n10%", worst, [run.summary.last.get(worst) for run in runs]))
    for about, wanted in targets_of(runs, asked):
        reached = [run.to_target(about, wanted) for run in runs]
        words = target_words(about, wanted, metrics, metric)
        columns += [
            lowest(f"{words}\nrounds", [t.round for t in reached], show_count),
            lowest("\ntime", [t.seconds for t in reached], show_seconds),
            lowest("\nbytes", [t.bytes for t in reached], show_bytes),
        ]
    return [
        *columns,
        total("all\nbytes", runs, [run.summary.cost.bytes for run in runs], show_bytes),
        total("all\ntime", runs, [run.summary.cost.seconds for run in runs], show_seconds),
    ]


def lowest(head: str, values: Sequence[float | None], show: Callable[[float | None], str]) -> TableColumn:
    """A column of costs: the lowest is the best."""
    return TableColumn(head=head, cells=tuple(map(show, values)), best=best_rows(values, highest=False))


def total(
    head: str, runs: Sequence[RunView], values: Sequence[float], show: Callable[[float | None], str]
) -> TableColumn:
    """A column of what whole runs cost: the lowest of those that came to their end is the best."""
    best = best_rows(of_finished(runs, values), highest=False)
    return TableColumn(head=head, cells=tuple(map(show, values)), best=best)


def of_finished(runs: Sequence[RunView], values: Sequence[float]) -> list[float | None]:
    """The values, without those of unfinished runs: whoever stopped early saved nothing."""
    return [value if run.summary.finished else None for run, value in zip(runs, values, strict=True)]


def unfinished(runs: Sequence[RunView], labels: Sequence[str]) -> list[str]:
    """Says plainly which runs have not ended."""
    return [
        f"{label} is unfinished: {run.summary.rounds_done:,}"
        f"{f' of {run.summary.rounds:,}' if run.summary.rounds else ''} rounds so far."
        for run, label in zip(runs, labels, strict=True)
        if not run.summary.finished
    ]


def cost_columns(run: RunView) -> list[TableColumn]:
    """One row per step kind, then their sum; what only served to measure the run comes after it."""
    kinds = run.summary.cost.by_kind
    training = sorted(kind for kind in kinds if not kind.endswith(MEASURING))
    evaluation = sorted(kind for kind in kinds if kind.endswith(MEASURING))
    names = [*training, "all", *evaluation]
    costs: list[Cost] = [kinds[k] for k in training] + [run.summary.cost] + [kinds[k] for k in evaluation]
    return [
        TableColumn(head="step", cells=tuple(names), right=False, best=frozenset({len(training)})),
        TableColumn(head="messages", cells=tuple(show_count(c.messages) for c in costs)),
        TableColumn(head="up", cells=tuple(show_bytes(c.bytes_up) for c in costs)),
        TableColumn(head="down", cells=tuple(show_bytes(c.bytes_down) for c in costs)),
        TableColumn(head="peer to peer", cells=tuple(show_bytes(c.bytes_peer) for c in costs)),
        TableColumn(head="seconds", cells=tuple(show_seconds(c.seconds) for c in costs)),
    ]


def rich_table(columns: Sequence[TableColumn], title: str) -> Table:
    """Columns for the terminal, the best values in bold."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in columns:
        table.add_column(Text(column.head), justify="right" if column.right else "left", no_wrap=True)
    for row in range(len(columns[0].cells)):
        table.add_row(*(Text(c.cells[row], style="bold" if row in c.best else "") for c in columns))
    return table


def summary_table(runs: Sequence[RunView]) -> Table:
    """One row per method for the terminal."""
    title = metric_title(headline_metric(runs))
    return rich_table(summary_columns(runs), title[0].upper() + title[1:])
