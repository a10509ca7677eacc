"""The page of the benchmark: heat map, ranks, tests, and for every cell the command that repeats it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.merge import merged
from experiments.ranks import draw_ranks, pairs, ranks
from experiments.scoreboard import draw_scoreboard, scores
from experiments.spec import Experiment, read_experiment
from experiments.tuning import with_tuned

ACCURACY = "accuracy, mean over clients"
# The other pictures: file, column, title.
MORE = (
    ("worst.png", "worst 10 %", "Accuracy in % of the worst served tenth of the clients"),
    (
        "agreement.png",
        "agreement with the truth",
        "Adjusted Rand index x 100 of the groups with the true clusters",
    ),
)
COSTS = ("seconds to 90 % of the best", "bytes to 90 % of the best")


def inline(value: Any) -> str:
    """A value as TOML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {inline(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inline(part) for part in value) + "]"
    return json.dumps(value)


def command(tables: Mapping[str, Any]) -> str:
    """The command that runs what the tables describe."""
    words = ["covey run"]
    for key, value in tables.items():
        entries = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
        for name, part in entries.items():
            text = part if isinstance(part, str) else inline(part)
            words.append("--set " + shlex.quote(f"{name}={text}"))
    return " ".join(words)


def commands(experiment: Experiment) -> list[tuple[str, str, str]]:
    """Fleet, method and command of every cell, with the first seed."""
    return [
        (case.name, row.name, command(experiment.tables(row, case, 0)))
        for case in experiment.cases
        for row in experiment.rows
    ]


def in_cells(texts: Sequence[str]) -> str:
    """One line of a table; a bar in a text does not end its cell."""
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def tuning_lines(tuning: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each method's tries found and cost."""
    if not tuning:
        return []
    head = (
        "method",
        "tries",
        "own settings",
        "best",
        "what the best changes",
        "rounds",
        "bytes",
        "CPU seconds",
    )
    lines = ["", "## Tuning, on validation data with a seed of its own", ""]
    lines += [in_cells(head), "|" + " --- |" * len(head)]
    for one in tuning:
        scores = one["scores"]
        words = [one["row"], str(len(scores)), f"{scores[0]:.3f}", f"{max(scores):.3f}"]
        words += [f"`{inline(one['best'])}`" if one["best"] else "nothing", f"{one['rounds']:,}"]
        words += [f"{one['bytes']:,.0f}", f"{one['cpu_seconds']:.1f}"]
        lines.append(in_cells(words))
    spent = sum(one["cpu_seconds"] for one in tuning)
    return [*lines, "", f"The tuning took {spent:.0f} CPU seconds in all; the cells below are without it."]


def where_known(score: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, dict[str, list[float]]]:
    """The fleets and the methods that have a number wherever any other has one."""
    fleets = {
        fleet: {name: list(values) for name, values in methods.items() if np.isfinite(values).all()}
        for fleet, methods in score.items()
    }
    fleets = {fleet: methods for fleet, methods in fleets.items() if methods}
    common = set.intersection(*(set(methods) for methods in fleets.values())) if fleets else set()
    return {
        fleet: {name: methods[name] for name in methods if name in common}
        for fleet, methods in fleets.items()
    }


def with_kinds(experiment: Experiment) -> list[str]:
    """The fleets whose clients are of several true clusters: of one kind there is nothing to find."""
    found = []
    for case in experiment.cases:
        tables = merged(*case.layers)
        if "shift" in tables or tables.get("partition", {}).get("name") == "domain":
            found.append(case.name)
    return found


def cost_lines(result: Mapping[str, Any], column: str) -> list[str]:
    """A table of what it took each method on each fleet, mean over the seeds; never: one of them did not get there."""
    score = scores(result, column)
    if not score:
        return []
    methods = list(next(iter(score.values())))
    lines = ["", f"## {column[0].upper()}{column[1:]}", "", in_cells(["", *score])]
    lines.append("|" + " --- |" * (len(score) + 1))
    for method in methods:
        means = [float(np.mean(score[fleet][method])) for fleet in score]
        words = [f"{mean:,.0f}" if np.isfinite(mean) else "never" for mean in means]
        lines.append(in_cells([method, *words]))
    return lines


def write_page(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes the pictures and the page into the folder, and says where."""
    folder.mkdir(parents=True, exist_ok=True)
    score = scores(result, ACCURACY)
    found, tests = ranks(score), pairs(score)
    heat, order, text = folder / "heat-map.png", folder / "ranks.png", folder / "benchmark.md"
    title = "Accuracy in %, mean over clients on their own data; framed: best or level"
    draw_scoreboard(score, heat, title, few_seeds=True)
    draw_ranks(found, len(score), order)
    tuning = result.get("tuning", ())
    experiment = with_tuned(read_experiment(result["experiment"], result["scale"]), tuning)
    lines = [f"# {result['title']}", "", str(result.get("note", "")), "", "![heat map](heat-map.png)", ""]
    extra = []
    for name, column, title in MORE:
        several = scores(result, column)
        if column == "agreement with the truth":
            several = {fleet: several[fleet] for fleet in with_kinds(experiment) if fleet in several}
        known = where_known(several)
        if known and any(known.values()):
            draw_scoreboard(known, folder / name, title, few_seeds=True)
            extra.append(folder / name)
            lines += [f"![{column}]({name})", ""]
    lines += ["![ranks](ranks.png)", "", "| method | mean rank | 95 % |", "| --- | --- | --- |"]
    lines += [f"| {rank.method} | {rank.mean:.2f} | {rank.low:.2f} to {rank.high:.2f} |" for rank in found]
    sure = [pair for pair in tests if pair.p < 0.05]
    lines += [
        "",
        f"Intervals by a paired bootstrap over fleets and seeds. {len(sure)} of {len(tests)} pairs differ (Wilcoxon "
        "over fleets, Holm's p below 0.05):",
        "",
    ]
    lines += [f"- {pair.better} over {pair.worse}: p = {pair.p:.2g}" for pair in sure]
    for column in COSTS:
        lines += cost_lines(result, column)
    lines += tuning_lines(tuning)
    lines += ["", "## Every cell again", "", "| fleet | method | command |", "| --- | --- | --- |"]
    for fleet, method, run in commands(experiment):
        lines.append(in_cells([fleet, method, f"`{run}`"]))
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [heat, order, text, *extra]
