"""The page of the benchmark: heat map, ranks, tests, and for every cell the command that repeats it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covey.experiments.ranks import draw_ranks, pairs, ranks
from covey.experiments.scoreboard import draw_scoreboard, scores
from covey.experiments.spec import Experiment, read_experiment

ACCURACY = "accuracy, mean over clients"


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


def write_page(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes the pictures and the page into the folder, and says where."""
    folder.mkdir(parents=True, exist_ok=True)
    score = scores(result, ACCURACY)
    found, tests = ranks(score), pairs(score)
    heat, order, text = folder / "heat-map.png", folder / "ranks.png", folder / "benchmark.md"
    draw_scoreboard(score, heat, "Accuracy in %, mean over clients on their own data; framed: best or level")
    draw_ranks(found, len(score), order)
    experiment = read_experiment(result["experiment"], result["scale"])
    lines = [f"# {result['title']}", "", str(result.get("note", "")), "", "![heat map](heat-map.png)", ""]
    lines += ["![ranks](ranks.png)", "", "| method | mean rank | 95 % |", "| --- | --- | --- |"]
    lines += [f"| {rank.method} | {rank.mean:.2f} | {rank.low:.2f} to {rank.high:.2f} |" for rank in found]
    sure = [pair for pair in tests if pair.p < 0.05]
    lines += [
        "",
        f"{len(sure)} of {len(tests)} pairs differ (Wilcoxon over fleets, Holm's p below 0.05):",
        "",
    ]
    lines += [f"- {pair.better} over {pair.worse}: p = {pair.p:.2g}" for pair in sure]
    lines += ["", "## Every cell again", "", "| fleet | method | command |", "| --- | --- | --- |"]
    for fleet, method, run in commands(experiment):
        lines.append(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in (fleet, method, f"`{run}`")) + " |"
        )
    text.write_text("\n".join(lines) + "\n")
    return [heat, order, text]
