"""What the page draws, as plain JSON: one clock per run, and every curve aligned with it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.folder.read import RunView
from covey.folder.rows import Rows
from covey.folder.summary import MEASURED
from covey.report.fleet_view import fleet_view, groups_in_view, timeline_view
from covey.report.notes import drawn_notes
from covey.report.table import headline_metric, hues_of, known_metrics, run_labels, targets_of
from covey.report.thin import MOST_BARS, MOST_GROUPS, MOST_NAMES, MOST_POINTS, evenly, short, short_one
from covey.report.wording import is_share, metric_title
from covey.training.metrics import higher_is_better, split_name


def page_data(runs: Sequence[RunView]) -> dict[str, Any]:
    """All runs of a page; the metrics in the order in which they are offered."""
    metric, metrics = headline_metric(runs), known_metrics(runs)
    names = sorted({name for run in runs for name in run.summary.last}, key=metric_order)
    about = {
        name: {
            "title": metric_title(name),
            "share": is_share(name, metrics),
            "higher": higher_is_better(name, metrics),
        }
        for name in names
    }
    data = [
        run_data(run, label, MOST_BARS // len(runs))
        for run, label in zip(runs, run_labels(runs), strict=True)
    ]
    for run, place in zip(data, hues_of(run_labels(runs)), strict=True):
        run["hue"] = place
    targets = dict(reversed(targets_of(runs)))  # of several targets of a metric the first
    return {"metric": metric, "targets": targets, "metrics": about, "runs": data}


def metric_order(name: str) -> tuple[bool, bool, str]:
    """Accuracy-like metrics first, losses last."""
    _, base, aggregate = split_name(name)
    return base == "loss", aggregate == "std", name


def run_data(run: RunView, label: str, most_bars: int) -> dict[str, Any]:
    """One run: clock, curves, fleet, timeline and the notes that are drawn."""
    rounds = kept_rounds(run)
    clock = clock_of(run.rows, rounds)
    groups = groups_in_view(run.rows)
    fleet = fleet_view(run.rows, groups, run.about.classes)
    curves = {name: curve_of(run.rows, name, rounds, fleet["sizes"]) for name in run.summary.last}
    return {
        "label": label,
        "classes": list(run.about.classes),
        "names": some_names(run.client_names),
        "rounds": int(np.unique(run.rows.round[run.rows.round >= 0]).size),
        "clock": clock,
        "curves": curves,
        "fleet": fleet,
        "timeline": timeline_view(run.rows, groups, most_bars),
        "notes": drawn_notes(run.summary.notes),
        "targets": [{"metric": t.metric, "target": t.target} for t in run.summary.targets],
    }


def some_names(names: Mapping[int, str]) -> dict[str, str]:
    """Clients' names for the page, unless they are too many for one."""
    return {str(client): name for client, name in names.items()} if len(names) <= MOST_NAMES else {}


def kept_rounds(run: RunView) -> NDArray[np.int64]:
    """All rounds, or an even choice of them together with the rounds of the best values."""
    rounds = np.unique(run.rows.round[run.rows.round >= 0]).astype(np.int64)
    best = np.array([best.round for best in run.summary.best.values()], dtype=np.int64)
    return np.unique(np.concatenate([rounds[evenly(len(rounds), MOST_POINTS)], np.intersect1d(rounds, best)]))


def clock_of(rows: Rows, rounds: NDArray[np.int64]) -> dict[str, Any]:
    """Where each kept round stands on the four axes: rounds, seconds, bytes and messages, all cumulative."""
    measured = rows.take(rows.round >= 0)
    latest = {int(r): at for at, r in enumerate(measured.round)}
    places = [latest[int(r)] for r in rounds]
    sent = np.zeros(int(rounds.max(initial=0)) + 1)
    for name in rows.names:
        kind = name.removeprefix("fleet/messages:")
        if kind != name:
            found = rows.overall(name)
            np.add.at(sent, found.round, found.value)
    return {
        "round": rounds.tolist(),
        "seconds": short(measured.seconds[places], 7),
        "bytes": measured.bytes[places].tolist(),
        "messages": short(np.cumsum(sent)[rounds], 12),
    }


def aligned(
    curve: Rows, rounds: NDArray[np.int64], values: NDArray[np.float64] | None = None
) -> list[float | None]:
    """A curve's value at each kept round, null where it was not measured."""
    known = dict(zip(curve.round.tolist(), (curve.value if values is None else values).tolist(), strict=True))
    return [None if (value := known.get(r)) is None else short_one(value) for r in rounds.tolist()]


def curve_of(rows: Rows, name: str, rounds: NDArray[np.int64], sizes: dict[str, int]) -> dict[str, Any]:
    """One metric: all clients together, the largest groups, and the middle 80% of clients (or of models)."""
    split, base, aggregate = split_name(name)
    groups = rows.by_group(name)
    largest = (
        sorted(groups, key=lambda g: (-sizes.get(str(g), 0), g))[:MOST_GROUPS] if len(groups) > 1 else []
    )
    found: dict[str, Any] = {
        "all": aligned(rows.overall(name), rounds),
        "groups": {str(g): aligned(groups[g], rounds) for g in sorted(largest)},
        "of": len(groups),
    }
    if split == "local-test" and aggregate in ("mean", "weighted"):
        found |= band_of(rows.by_client(f"{split}/{base}"), rounds)
    elif split == "global-test" and len(groups) > 2:
        every = rows.of(name)
        found |= band_of(every.take(every.group != -1), rounds)
    return found


def band_of(rows: Rows, rounds: NDArray[np.int64]) -> dict[str, Any]:
    """The 10th and the 90th percentile at each kept round."""
    if not len(rows):
        return {}
    starts = np.flatnonzero(np.diff(rows.round, prepend=rows.round[0] - 1))
    parts = np.split(rows.value, starts[1:])
    at = rows.take(starts)
    low, high = np.array([np.quantile(part, (0.1, 0.9)) for part in parts]).T
    return {"low": aligned(at, rounds, low), "high": aligned(at, rounds, high)}


def measured_names(runs: Sequence[RunView]) -> list[str]:
    """The metrics for the headline: all but losses, in the order of the page."""
    names = {
        n for run in runs for n in run.summary.last if n.startswith(MEASURED) and split_name(n)[1] != "loss"
    }
    return sorted(names or {n for run in runs for n in run.summary.last}, key=metric_order)
