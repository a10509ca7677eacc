"""A stored result: small, with everything needed to know where it came from; tables in the docs are made from these."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from covey.errors import UserError
from covey.files import strict_json, write_atomically
from covey.report.seeds import number_in_words, short
from covey.version import __version__
from experiments.execute import Made
from experiments.origin import processor
from experiments.spec import Experiment, experiments_folder, read_experiment
from experiments.stored_numbers import from_json, to_json


def result_of(experiment: Experiment, made: Made) -> dict[str, Any]:
    """Numbers by case, row and column (one per seed), the paper's beside, and where every run comes from."""
    cells = []
    columns = list(experiment.columns)
    for case, rows in made.values.items():
        for row, found in rows.items():
            known = any(r.name == row for r in experiment.rows)
            for column, numbers in found.items():
                if column not in columns:
                    columns.append(column)
                paper = experiment.paper_number(case, row, column) if known else None
                cell = {"case": case, "row": row, "column": column, "values": list(map(to_json, numbers))}
                kind = experiment.columns.get(column, "").partition(":")[0]
                compared = {"comparison": kind} if kind in ("ratio", "difference") else {}
                said = made.refused.get((case, row))
                refused = {"refused": said} if said else {}
                cells.append({**cell, "paper": paper, **compared, **refused})
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "scale": experiment.scale,
        "seeds": experiment.seeds,
        "note": experiment.note,
        "columns": columns,
        "cells": cells,
        "made": {
            "date": datetime.date.today().isoformat(),
            "commit": ", ".join(sorted({run["commit"] for run in made.runs})),
            "covey": __version__,
            "versions": {name: package_version(name) for name in ("torch", "numpy", "scikit-learn", "numba")},
            "machine": processor(),
            "instructions": "; ".join(sorted({run["instructions"] for run in made.runs})),
            "python": platform.python_version(),
            "cpu_seconds": round(sum(run["cpu_seconds"] for run in made.runs), 1),
        },
        "runs": made.runs,
    }


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def store(result: Mapping[str, Any], out: Path, *, keep: bool) -> list[Path]:
    """Writes the result beside the runs and, to `keep` it, beside the experiment where that can be written."""
    text = strict_json(result, indent=1)
    places = [out / "result.json"]
    if keep:
        places.append(stored_place(result["experiment"], result["scale"]))
    written = []
    for place in places:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, text)
            written.append(place)
        except OSError:
            if place == places[0]:
                raise
    return written


def stored_place(name: str, scale: str) -> Path:
    """experiments/PAPER/results/TABLE-SCALE.json"""
    paper, _, table = name.partition("/")
    return experiments_folder() / paper / "results" / f"{table}-{scale}.json"


def read_stored(name: str, scale: str) -> dict[str, Any]:
    """A stored result."""
    place = stored_place(name, scale)
    if not place.exists():
        raise UserError(
            f"{place} does not exist; make it with: python -m experiments reproduce {name} --scale {scale}"
        )
    result: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return result


def with_paper(result: dict[str, Any]) -> dict[str, Any]:
    """A stored result with the paper's numbers and the note as the experiment has them now: neither was measured."""
    name = result["experiment"]
    experiment = replace(read_experiment(name, result["scale"]), rows=read_experiment(name, "full").rows)
    rows = {row.name for row in experiment.rows}
    result["note"] = experiment.note
    for cell in result["cells"]:
        known = cell["row"] in rows
        cell["paper"] = experiment.paper_number(cell["case"], cell["row"], cell["column"]) if known else None
    return result


def seeds_in_words(result: Mapping[str, Any]) -> str:
    """How many seeds a stored result has, from case to case."""
    most: dict[str, int] = {}
    for run in result.get("runs", ()):
        most[run["case"]] = max(most.get(run["case"], 0), run["seed"] + 1)
    few, many = min(most.values(), default=result["seeds"]), max(most.values(), default=result["seeds"])
    return f"{few} to {many} seeds" if few < many else f"{many} seed{'s' if many > 1 else ''}"


def words_of(cell: Mapping[str, Any]) -> str:
    """One cell of a stored result as a table shows it."""
    if "refused" in cell:
        return "refused"
    return number_in_words([from_json(value) for value in cell["values"]], cell.get("comparison", ""))


def table_cells(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the table: for every column ours, and the paper's where it has any number."""
    cells = {(c["case"], c["row"], c["column"]): c for c in result["cells"]}
    with_paper = {c["column"] for c in result["cells"] if c["paper"] is not None}
    cases = list(dict.fromkeys(c["case"] for c in result["cells"]))
    head = (["case"] if cases != [""] else []) + [""]
    for column in result["columns"]:
        head += [column, "paper"] if column in with_paper else [column]
    lines = []
    for case, row in dict.fromkeys((c["case"], c["row"]) for c in result["cells"]):
        line = ([case] if cases != [""] else []) + [row]
        for column in result["columns"]:
            cell = cells.get((case, row, column))
            line.append(words_of(cell) if cell else "")
            if column in with_paper:
                line.append(short(cell["paper"]) if cell and cell["paper"] is not None else "")
        lines.append(line)
    return head, lines
