"""A stored result: small, with everything needed to know where it came from; tables in the docs are made from these."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import covey
from covey.errors import UserError
from covey.experiments.execute import Values
from covey.experiments.spec import Experiment, experiments_folder
from covey.writing import write_atomically


def result_of(experiment: Experiment, values: Values, seconds: float) -> dict[str, Any]:
    """Numbers by case, row and column (one a seed), the paper's beside, and where and when they were made."""
    cells = []
    columns = list(experiment.columns)
    for case, rows in values.items():
        for row, found in rows.items():
            known = any(r.name == row for r in experiment.rows)
            for column, numbers in found.items():
                if column not in columns:
                    columns.append(column)
                paper = experiment.paper_number(case, row, column) if known else None
                cells.append({"case": case, "row": row, "column": column, "values": numbers, "paper": paper})
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
            "commit": commit(),
            "covey": covey.__version__,
            "versions": {name: package_version(name) for name in ("torch", "numpy", "scikit-learn", "numba")},
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
            "seconds": round(seconds, 1),
        },
    }


def commit() -> str:
    """The commit of the sources, with + where they were changed; empty outside a checkout."""
    here = Path(covey.__file__).parent
    try:
        name = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "-C", str(here), "status", "--porcelain", "-uno", "."],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return name + ("+" if changed else "")


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def store(result: Mapping[str, Any], out: Path) -> list[Path]:
    """Writes the result beside the runs and, where the experiments can be written, beside the experiment."""
    text = json.dumps(result, indent=1)
    places = [out / "result.json"]
    if result["scale"] != "smoke":
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
        raise UserError(f"{place} does not exist; make it with: covey reproduce {name} --scale {scale}")
    result: dict[str, Any] = json.loads(place.read_text())
    return result


def in_words(values: list[float | None]) -> str:
    """Mean and spread over seeds; "-" where no seed has a number, and how many have one if not all."""
    numbers = np.array([value for value in values if value is not None])
    if not len(numbers):
        return "-"
    text = short(float(numbers.mean()))
    if np.ptp(numbers) > 1e-12 * np.abs(numbers).max():  # more than rounding
        text += f" ± {two_digits(float(numbers.std(ddof=1)))}"
    if len(numbers) < len(values):
        text += f" ({len(numbers)} of {len(values)})"
    return text


def two_digits(number: float) -> str:
    """A spread: two significant digits, from 10 on all whole ones, never as a power of ten unless tiny."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def short(number: float) -> str:
    """A number with four significant digits, whole numbers in full."""
    if float(number).is_integer() and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.1f}" if abs(number) >= 1000 else f"{number:.4g}"


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
            line.append(in_words(cell["values"]) if cell else "")
            if column in with_paper:
                line.append(short(cell["paper"]) if cell and cell["paper"] is not None else "")
        lines.append(line)
    return head, lines
