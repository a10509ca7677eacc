"""Some rows of a stored result made again: the others stay, and what compares rows is made anew."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from covey.errors import UserError
from covey.report.seeds import Bound
from experiments.execute import execute_runs
from experiments.only import kept_of, only, together
from experiments.result import result_of
from experiments.spec import Experiment, read_experiment

TABLE = """
title = "Two rows"
seeds = 2
[columns]
accuracy = "last:local-test/accuracy-mean"
more = "difference:accuracy:A"
rounds = "best90:round:local-test/accuracy-mean"
[base]
rounds = 1
data = { clients = 4 }
[[run]]
name = "A"
set = { method = { name = "fedavg" } }
[[run]]
name = "B"
set = { method = { name = "local" } }
"""


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "table.toml").write_text(TABLE)
    monkeypatch.setenv("COVEY_EXPERIMENTS", str(tmp_path))
    return read_experiment("mine/table", "small")


def stored(seeds: int = 2) -> dict:
    """Of both rows, as nobody could measure them: an accuracy of 2."""
    numbers = {"accuracy": [2.0, 2.0], "more": [7.0, 7.0], "rounds": [1.0, 1.0]}
    cells = [
        {"case": "", "row": row, "column": column, "values": values}
        for row in ("A", "B")
        for column, values in numbers.items()
    ]
    origin = {"commit": "0ldc0de", "instructions": "", "cpu_seconds": 1.0}
    runs = [{"case": "", "row": row, "seed": seed, **origin} for row in ("A", "B") for seed in range(2)]
    return {"seeds": seeds, "cells": cells, "runs": runs}


def test_the_row_is_new_the_other_is_kept_with_its_commit(experiment: Experiment, tmp_path: Path) -> None:
    kept = kept_of(experiment, ["B"], stored())
    live = lambda *_: nullcontext(lambda *_: None)  # noqa: E731
    made = execute_runs(only(experiment, ["B"]), tmp_path / "out", live, lambda _: None, kept.values)
    found = together(experiment, kept, made)
    a, b = found.values[""]["A"], found.values[""]["B"]
    assert list(found.values[""]) == ["A", "B"]
    assert a == {"accuracy": [2.0, 2.0], "more": [0.0, 0.0], "rounds": [1.0, 1.0]}
    assert all(0 < value < 1 for value in b["accuracy"])
    assert b["more"] == pytest.approx([value - 2.0 for value in b["accuracy"]])
    assert all(isinstance(value, Bound) for value in b["rounds"])  # 90 % of 2 is beyond anybody
    assert [run["commit"] == "0ldc0de" for run in found.runs] == [True, True, False, False]
    assert "0ldc0de" in result_of(experiment, found)["made"]["commit"]


def test_what_is_not_stored_cannot_be_kept(experiment: Experiment) -> None:
    with pytest.raises(UserError, match="stored with 2 seeds: A is not; run it without --only"):
        kept_of(experiment, ["B"], stored(seeds=3))
    incomplete = stored()
    incomplete["cells"] = incomplete["cells"][1:]
    with pytest.raises(UserError, match="A, accuracy is not"):
        kept_of(experiment, ["B"], incomplete)


def test_a_row_that_does_not_exist_is_one_sentence(experiment: Experiment) -> None:
    with pytest.raises(UserError, match="--only is 'C'; allowed: A, B"):
        only(experiment, ["C"])
