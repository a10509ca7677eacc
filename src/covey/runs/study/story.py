"""The demo's story: what each idea is for, against the baseline it is meant to beat, on a fleet where it matters.

seeds                 how many, each run with all of them
[base]                the configuration that all runs share
[[line]] idea, fleet  what the table says of them
set                   on top of the base: the fleet where the idea matters
method, baseline      the two that are run on it
measure, what         the number that is compared, and its name in the table:
    last:SPLIT/METRIC     the value after the last round
    tail5:SPLIT/METRIC    mean over the last 5 measured rounds
    clusters:worst:SPLIT/METRIC     the lowest mean over the clients of one true cluster, after the last round
    to:round | to:seconds | to:bytes             what it took to reach the target; over what the run cost if it did not
    cost:messages | cost:bytes | cost:seconds    in all, without measuring
better = "lower"      of costs; then the ratio is shown, else the difference
beside                another number that must not suffer, shown in brackets
clusters              whether the accuracy of every true cluster of clients is shown, too
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from covey.errors import UserError
from covey.folder.place import finished_summary
from covey.folder.read import read_run
from covey.folder.rows import read_parquet
from covey.folder.summary import Summary
from covey.report.seeds import Bound, Number, differences, may_be_equal, number_in_words, ratios, value_of
from covey.report.table import TableColumn
from covey.runs.config import resolve
from covey.runs.results import Study
from covey.runs.study.plan import StudyPlan
from covey.settings.toml import on_top, read_tables

STORY = Path(__file__).parent / "demo.toml"
ReadNumber = Callable[[str, Summary, Path], Number]


@dataclass(frozen=True, kw_only=True)
class StoryLine:
    """One line of the story."""

    idea: str
    fleet: str
    set: Mapping[str, Any]
    method: Mapping[str, Any]
    baseline: Mapping[str, Any]
    measure: str
    what: str
    better: Literal["higher", "lower"] = "higher"
    beside: str = ""
    clusters: bool = False


@dataclass(frozen=True, kw_only=True)
class Story:
    """The lines, and the study that they need."""

    title: str
    lines: Sequence[StoryLine]
    plan: StudyPlan


def read_story(file: Path = STORY, seeds: int | None = None) -> Story:
    """The story that a file tells."""
    tables = read_tables(file)
    lines = [StoryLine(**line) for line in tables["line"]]
    configs = {}
    for number, line in enumerate(lines, start=1):
        for method in (line.method, line.baseline):
            whole = on_top(tables["base"], line.set, {"method": dict(method)})
            configs[label(number, method)] = resolve(whole)
    plan = StudyPlan(kind="demo", configs=configs, seeds=seeds or tables["seeds"])
    return Story(title=tables["title"], lines=lines, plan=plan)


def label(number: int, method: Mapping[str, Any]) -> str:
    return f"{number} {method['name']}"


def story_columns(story: Story, done: Study) -> list[TableColumn]:
    """The table: idea, fleet, what is compared, the idea's number, the baseline's, and what lies between them."""
    rows = []
    for number, line in enumerate(story.lines, start=1):
        sides = [
            [run.folder for run in done.runs.get(label(number, m), {}).values()]
            for m in (line.method, line.baseline)
        ]
        ours, theirs = ([cell(line.measure, folder) for folder in folders] for folders in sides)
        words = [
            f"{m['name']}\n{number_words(numbers, line)}{aside(line, folders)}"
            for m, numbers, folders in zip((line.method, line.baseline), (ours, theirs), sides, strict=True)
        ]
        rows.append((line.idea, line.fleet, line.what, *words, between(ours, theirs, line)))
    heads = ("idea", "on a fleet of", "measured", "with it", "baseline", "with it, against the baseline")
    return [
        TableColumn(head=head, cells=tuple(row[place] for row in rows), right=False)
        for place, head in enumerate(heads)
    ]


def cell(what: str, folder: Path) -> Number:
    summary = finished_summary(folder)
    return None if summary is None else read_by(MEASURES, what, summary, folder)


def read_by(readers: Mapping[str, ReadNumber], what: str, summary: Summary, folder: Path) -> Number:
    """The number of this name, or None where the run has none; a bound for a target that was not reached."""
    kind, _, name = what.partition(":")
    if tail := re.fullmatch(r"tail(\d+)", kind):
        values = read_parquet(folder / "metrics.parquet").overall(name).value[-int(tail[1]) :]
        return float(values.mean()) if len(values) else None
    if kind not in readers:
        raise UserError(f"the measure {what!r} is not known; allowed: tailN:, {':, '.join(sorted(readers))}:")
    return readers[kind](name, summary, folder)


def to_target(name: str, summary: Summary, _: Path) -> Number:
    """What it took to reach the first target; where it was not reached, more than the whole run."""
    if not summary.targets:
        return None
    whole = summary.rounds_done if name == "round" else getattr(summary.cost, name)
    found = finite(getattr(summary.targets[0], name))
    return Bound(float(whole)) if found is None else found


def accuracy_by_cluster(folder: Path, name: str) -> dict[int, float]:
    """The mean of the clients' own last values by their true cluster."""
    rows = read_run(folder).rows
    clusters = rows.of("data/cluster")
    cluster_of = dict(zip(clusters.client.tolist(), clusters.value.astype(int).tolist(), strict=True))
    every = rows.by_client(name)
    last = every.take(every.round == every.round.max(initial=0))
    parts: dict[int, list[float]] = {}
    for client, value in zip(last.client.tolist(), last.value.tolist(), strict=True):
        if client in cluster_of:
            parts.setdefault(cluster_of[client], []).append(value)
    return {cluster: float(np.mean(values)) for cluster, values in sorted(parts.items())}


def finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


MEASURES: dict[str, ReadNumber] = {
    "last": lambda name, summary, _: finite(summary.last.get(name)),
    "to": to_target,
    "cost": lambda name, summary, _: finite(getattr(summary.cost, name, None)),
    "clusters": lambda name, _, folder: min(
        accuracy_by_cluster(folder, name.partition(":")[2]).values(), default=None
    ),
}


def is_share(line: StoryLine) -> bool:
    return "accuracy" in line.measure


def number_words(numbers: Sequence[Number], line: StoryLine) -> str:
    """Mean and spread over seeds: shares as percentages."""
    if is_share(line):
        return number_in_words([None if n is None else 100 * value_of(n) for n in numbers]) + " %"
    return number_in_words(numbers)


def aside(line: StoryLine, folders: Sequence[Path]) -> str:
    """What else the line shows: the mean accuracy of each cluster, or the number that must not suffer."""
    if line.clusters:
        tables = [accuracy_by_cluster(folder, "local-test/accuracy") for folder in folders]
        clusters = sorted({cluster for table in tables for cluster in table})
        means = [sum(table[cluster] for table in tables) / len(tables) for cluster in clusters]
        return "\n(" + " ".join(f"{100 * mean:.0f}" for mean in means) + ")"
    if line.beside:
        numbers = [cell(line.beside, folder) for folder in folders]
        return f"\n(accuracy {number_in_words([100 * value_of(n) for n in numbers if n is not None])} %)"
    return ""


def between(ours: Sequence[Number], theirs: Sequence[Number], line: StoryLine) -> str:
    """The difference in points, or the ratio of costs, seed by seed with its 95 % interval."""
    if len(ours) != len(theirs) or not ours:
        return "not all runs came to their end"
    if line.better == "lower":
        found = ratios(ours, theirs)
        words = f"{number_in_words(found, 'ratio')} of it"
        gaps = [math.log(n) for n in found if isinstance(n, float)]
    else:
        found = [None if n is None else 100 * value_of(n) for n in differences(ours, theirs)]
        words = f"{number_in_words(found, 'difference')} points"
        gaps = [n for n in found if isinstance(n, float)]
    if len(gaps) == len(found) > 2 and np.ptp(gaps) < 1e-9 < abs(gaps[0]):  # a count that no seed changes
        return f"{words}\nin every seed"
    alike = len(gaps) == len(found) > 1 and may_be_equal(np.array(gaps), np.zeros(len(gaps)))
    return words + ("\nnot significant" if alike else "")
