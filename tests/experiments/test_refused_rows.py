"""Rows that covey must refuse: the table says so, and an experiment that is wrong about it ends."""

from pathlib import Path

import pytest

from covey.errors import UserError
from experiments.execute import execute_runs
from experiments.result import result_of, table_cells
from experiments.spec import Experiment, read_experiment

TABLE = """
title = "Refused"
[columns]
accuracy = "last:local-test/accuracy-mean"
[base]
rounds = 1
[[case]]
name = "private"
set = {{ private = {{ epsilon = 8 }} }}
[[run]]
name = "row"
set = {{ method = {{ name = "{method}" }} }}
refused = ["private"]
"""


def experiment_with(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    (folder / "mine").mkdir()
    (folder / "mine" / "table.toml").write_text(TABLE.format(method=method))
    monkeypatch.setenv("COVEY_EXPERIMENTS", str(folder))
    return read_experiment("mine/table", "small")


def test_a_refused_row_is_told_with_its_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = experiment_with("ifca", tmp_path, monkeypatch)
    made = execute_runs(experiment, tmp_path / "out", lambda *_: None, lambda _: None)
    result = result_of(experiment, made)
    assert "method ifca cannot be private at the client level" in result["cells"][0]["refused"]
    assert table_cells(result)[1] == [["private", "row", "refused"]]


def test_a_row_that_is_not_refused_as_it_is_said_to_be_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = experiment_with("fedavg", tmp_path, monkeypatch)
    with pytest.raises(UserError, match="'row' is said to be refused in 'private', and is not"):
        execute_runs(experiment, tmp_path / "out", lambda *_: None, lambda _: None)
