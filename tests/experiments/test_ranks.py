"""Ranks over fleets, and the page of the benchmark."""

from pathlib import Path

import numpy as np
import pytest

from experiments.benchmark_page import command, commands, write_page
from experiments.ranks import Rank, bars, critical_difference, pairs, rank_table, ranks
from experiments.spec import read_experiment

SCORE = {f"fleet {k}": {"a": [0.9, 0.8], "b": [0.5, 0.6 + 0.01 * k], "c": [0.1, 0.2]} for k in range(8)}


def test_ranks_by_hand() -> None:
    methods, table = rank_table({"one": {"a": [1.0], "b": [2.0]}, "two": {"a": [3.0], "b": [3.0]}})
    assert (methods, table.tolist()) == (["a", "b"], [[2, 1], [1.5, 1.5]])
    assert [(r.method, r.mean, r.low, r.high) for r in ranks(SCORE)] == [
        ("a", 1, 1, 1),
        ("b", 2, 2, 2),
        ("c", 3, 3, 3),
    ]


def test_pairs_are_corrected_for_their_number() -> None:
    """Eight fleets, always the same sign: Wilcoxon's p is 2 / 2^8 for each, Holm's 3 times that for the first."""
    found = pairs(SCORE)
    assert {(p.better, p.worse) for p in found} == {("a", "b"), ("a", "c"), ("b", "c")}
    assert found[0].p == pytest.approx(3 * 2 / 2**8)


def test_the_critical_difference_is_demsars() -> None:
    """Demsar (2006): q = 2.343 for 3 methods, 2.569 for 4 at 5 %."""
    assert critical_difference(4, 14) == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), abs=2e-3)
    three = [Rank(method=m, mean=at, low=at, high=at) for m, at in (("a", 1.0), ("b", 1.6), ("c", 2.4))]
    assert bars(three, 1.0) == [(0, 1), (1, 2)]


def test_every_cell_has_its_command(tmp_path: Path) -> None:
    experiment = read_experiment("heterogeneity/benchmark", "smoke")
    assert len(commands(experiment)) == len(experiment.cases) * len(experiment.rows)
    text = command({"seed": 1, "devices": {"joins": [{"clients": [1, 2], "round": 3}]}, "name": "a b"})
    assert (
        text
        == "covey run --set seed=1 --set 'devices.joins=[{clients = [1, 2], round = 3}]' --set 'name=a b'"
    )
    cells = [
        {"case": case, "row": row, "column": "accuracy, mean over clients", "values": values}
        for case, rows in SCORE.items()
        for row, values in rows.items()
    ]
    result = {
        "experiment": "heterogeneity/benchmark",
        "scale": "smoke",
        "title": "T",
        "note": "N",
        "cells": cells,
    }
    heat, order, page = write_page(result, tmp_path)
    assert heat.stat().st_size > 1000
    assert order.stat().st_size > 1000
    assert "| a | 1.00 | 1.00 to 1.00 |" in page.read_text()
