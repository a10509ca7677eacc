"""How names, numbers and units are written, the same in the terminal, in figures and on the page."""

import math
from collections.abc import Sequence

from covey.training.metrics import BUILT_IN, Metrics, split_name

SPLITS = {"global-test": "global test", "local-test": "local test"}
AGGREGATES = {
    "mean": "mean over clients",
    "weighted": "weighted by samples",
    "std": "std over clients",
    "worst10": "worst 10% of clients",
}
NO_VALUE = "–"


def metric_title(name: str) -> str:
    """The words for a metric: what is measured, on what, and how it is put together."""
    split, base, aggregate = split_name(name)
    words = [base, SPLITS.get(split, split)]
    return ", ".join([*words, AGGREGATES[aggregate]] if aggregate else words)


def short_title(name: str) -> str:
    """The words for a column head: where and how, without the name of the metric."""
    split, _, aggregate = split_name(name)
    where = SPLITS.get(split, split)
    return where if not aggregate else f"{where}, {AGGREGATES[aggregate].replace(' over clients', '')}"


def is_share(name: str, metrics: Metrics = BUILT_IN) -> bool:
    """Whether the metric lives in 0..1 and reads best as a percentage."""
    return metrics[split_name(name)[1]].share


def show_value(name: str, value: float | None, metrics: Metrics = BUILT_IN) -> str:
    """One metric value: a percentage with two digits, or four significant digits."""
    if value is None or not math.isfinite(value):
        return NO_VALUE
    return f"{100 * value:.2f}%" if is_share(name, metrics) else f"{value:.4g}"


def show_target(name: str, target: float, metrics: Metrics = BUILT_IN) -> str:
    """A target as the user gave it: without digits that are all zero."""
    return f"{100 * target:.6g}%" if is_share(name, metrics) else f"{target:.6g}"


def show_bytes(count: float | None) -> str:
    """Bytes in decimal units: 1 MB = 1,000,000 bytes."""
    if count is None:
        return NO_VALUE
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 999.5 * size else f"{count / size:.0f} {unit}"
    return f"{count:.0f} B"


def show_seconds(seconds: float | None) -> str:
    """A duration in the unit that keeps it readable."""
    if seconds is None or not math.isfinite(seconds):
        return NO_VALUE
    for unit, size, start in (("d", 86400.0, 172800.0), ("h", 3600.0, 7200.0), ("min", 60.0, 120.0)):
        if seconds >= start:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def show_count(count: float | None) -> str:
    """A whole number with thousands separated."""
    return NO_VALUE if count is None else f"{count:,.0f}"


def unlike_labels(names: Sequence[str], hints: Sequence[str]) -> list[str]:
    """One label per run: its name, with the hint added where two runs share the name."""
    labels = [
        name if names.count(name) == 1 else f"{name} ({hint})"
        for name, hint in zip(names, hints, strict=True)
    ]
    return [
        label if labels.count(label) == 1 else f"{label} #{1 + labels[:place].count(label)}"
        for place, label in enumerate(labels)
    ]


def show_epsilon(epsilon: float) -> str:
    """A privacy loss in four digits, or that nothing bounds it."""
    return f"{epsilon:.4g}" if math.isfinite(epsilon) else "unbounded"


def epsilon_words(epsilon: float) -> str:
    """What a privacy loss means: how far a message can change the odds about one sample, and how good that is."""
    if epsilon <= 1:
        judged = "strong protection"
    elif epsilon <= 3:
        judged = "some protection"
    elif epsilon <= 10:
        judged = "weak protection"
    else:
        judged = "next to no protection"
    if not math.isfinite(epsilon):
        return "no protection: how far what it sent may change the odds about one of its samples is unbounded"
    odds = f"{math.exp(epsilon):.3g}" if epsilon < 20 else f"10^{epsilon / math.log(10):.0f}"
    return f"{judged}: what it sent may change the odds about one of its samples {odds}-fold"
