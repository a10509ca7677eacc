"""Somebody's own files in whole runs: on the command line, in TOML, over a resume, and with mistakes in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import covey as covey_package
from covey.cli import app
from covey.errors import UserError
from covey.folder.checkpoint import load_checkpoint
from covey.runs.config import resolve
from covey.runs.run import Interrupted, resume, run_config
from covey.settings.toml import read_tables
from experiments.__main__ import app as experiments

MINE = '''
import math
import torch
from torch import nn
import covey
from covey.core.round import Method
from covey.data import from_tensors
from covey.parts.mix.average import Average
from covey.training.objective import Classification
from covey.parts.selection.plain import Uniform
from covey.parts.steps import Train

def few(train: Train, *, per_round: int = 2, sure: bool = True) -> Method:
    """A few clients per round, all the same.

    per_round: how many. sure: nothing.
    """
    return Method(name="few", select=Uniform(per_round=per_round), local=train, mix=Average(weighting="samples"))

def blobs(*, samples: int = 120, apart: float = 3.0):
    """Two heaps of points."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(samples) % 2
    return from_tensors(torch.randn(samples, 4, generator=rng) + apart * y[:, None], y, name="blobs")

def halves(labels, *, clients, rng):
    """Every second sample."""
    order = rng.permutation(len(labels))
    return [order[i::clients] for i in range(clients)]

class Net(nn.Sequential):
    """A small net."""

    def __init__(self, input_shape, outputs, width: int = 8):
        super().__init__(nn.Linear(math.prod(input_shape), width), nn.Tanh(), nn.Linear(width, outputs))

class Goal(Classification):
    """Cross-entropy by another name."""

    kernel = ""

def broken(train: Train) -> Method:
    """Broken when it is made."""
    return few(train, per_round=[][0])

def late(train: Train) -> Method:
    """Broken when it works."""
    def nobody(now):
        return now.memory["nothing"]
    return Method(name="late", select=nobody, local=train, mix=Average(weighting="samples"))
'''
OPTIONS = ["--rounds", "2", "--set", "engine.mode=serial", "--set", "data.clients=3"]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def covey(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_everything_in_a_run_can_be_ones_own(mine: Path) -> None:
    own = [
        "model.name=mine.py:Net",
        "model.width=5",
        "partition.name=mine.py:halves",
        "objective=mine.py:Goal",
    ]
    sets = [word for setting in own for word in ("--set", setting)]
    covey("run", "--method", "mine.py:few", "--dataset", "mine.py:blobs", *OPTIONS, *sets, "--out", "run")
    summary = json.loads(Path("run/summary.json").read_text())
    assert (summary["method"], summary["dataset"], summary["model"]) == ("few", "blobs", "Net")
    assert summary["parameters"] == 4 * 5 + 5 + 5 * 2 + 2
    assert {origin["kind"] for origin in summary["own"]} == {
        "method", "data set", "partition", "model", "objective"
    }  # fmt: skip
    assert {origin["source"] for origin in summary["own"]} == {str(mine)}


def test_a_method_of_ones_own_is_shown_with_its_settings(mine: Path) -> None:
    shown = covey("methods", "mine.py:few")
    assert "A few clients per round" in shown
    for word in ("per_round", "a whole number", "sure", "true"):
        assert word in shown


def test_a_part_of_ones_own_is_shown_where_nothing_else_was_imported(mine: Path) -> None:
    """In a process of its own: there the file is the first that imports torch."""
    mine.write_text(
        "from covey.core.round import Round\n\n"
        'def first(now: Round):\n    """The first client."""\n    return now.here[:1]\n'
    )
    words = [sys.executable, "-m", "covey", "parts", "select", "mine.py:first"]
    here = {**os.environ, "PYTHONPATH": str(Path(covey_package.__file__).parents[1])}
    said = subprocess.run(words, capture_output=True, text=True, cwd=mine.parent, env=here, check=False)
    assert said.returncode == 0, said.stderr
    assert "The first client." in said.stdout


def test_own_methods_are_compared_with_built_in_ones(mine: Path) -> None:
    covey("compare", "fedavg", "mine.py:few", *OPTIONS, "--out", "both")
    assert Path("both/few/summary.json").exists()
    assert Path("both/fedavg/summary.json").exists()


def test_a_toml_file_names_files_beside_it(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    mine.rename(tmp_path / "deep" / "mine.py")
    text = '[method]\nname = "mine.py:few"\n[methods."mine.py:few"]\nper_round = 3\n'
    (tmp_path / "deep" / "run.toml").write_text(text)
    config = resolve(read_tables(tmp_path / "deep" / "run.toml"))
    assert config["method"]["name"] == f"{tmp_path}/deep/mine.py:few"
    assert config["method"]["per_round"] == 3
    assert config.method_name == "few"


EXPERIMENT = """
title = "Mine beside FedAvg"
seeds = 2
columns = { accuracy = "last:global-test/accuracy" }

[base]
rounds = 2
data = { name = "mine.py:blobs", clients = 3, samples = 90 }
partition = { name = "mine.py:halves" }
model = { name = "mine.py:Net", width = 5 }
engine = { mode = "serial" }

[[run]]
name = "few"
set = { method = { name = "mine.py:few" } }

[[run]]
name = "FedAvg"
set = { method = { name = "fedavg", per_round = 2 } }
"""


def test_an_experiment_of_ones_own_names_the_files_beside_it(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_EXPERIMENTS", "")  # put back afterwards
    (tmp_path / "own").mkdir()
    mine.rename(tmp_path / "own" / "mine.py")
    (tmp_path / "own" / "board.toml").write_text(EXPERIMENT)
    words = ["reproduce", "own/board.toml", "--out", "tried"]
    shown = CliRunner().invoke(experiments, words, catch_exceptions=False).output
    assert "few" in shown
    assert "FedAvg" in shown
    (result,) = tmp_path.glob("tried/*.json")
    cells = {cell["row"]: cell["values"] for cell in json.loads(result.read_text())["cells"]}
    assert [len(values) for values in (cells["few"], cells["FedAvg"])] == [2, 2]
    summaries = [json.loads(path.read_text()) for path in tmp_path.glob("tried/**/summary.json")]
    assert {origin["source"] for one in summaries for origin in one["own"]} == {
        str(tmp_path / "own" / "mine.py")
    }
    assert {one["model"] for one in summaries} == {"Net"}


def test_a_setting_may_be_called_like_what_another_kind_of_thing_is_given(mine: Path) -> None:
    """`samples` is what a partition gets, and `labels` no name that a method gets."""
    mine.write_text(MINE.replace("per_round: int = 2,", "per_round: int = 2, labels: int = 3,"))
    tables = {
        "method": {"name": "mine.py:few", "labels": 4},
        "data": {"name": "mine.py:blobs", "samples": 90},
    }
    config = resolve(tables)
    assert (config["method"]["labels"], config["data"]["samples"]) == (4, 90)


@pytest.mark.parametrize(
    ("method", "line"), [("broken", "line 44: IndexError"), ("late", "line 49: KeyError")]
)
def test_a_mistake_in_ones_own_file_is_one_sentence_with_its_line(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], method: str, line: str
) -> None:
    from covey import cli

    monkeypatch.setattr(
        "sys.argv", ["covey", "run", "--method", f"mine.py:{method}", *OPTIONS, "--out", "run"]
    )
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert f"{mine}, {line}" in said
    assert "Traceback" not in said


def stopped(folder: Path, mine: Path) -> None:
    tables = {
        "rounds": 3,
        "method": {"name": f"{mine}:few"},
        "data": {"clients": 3},
        "engine": {"mode": "serial"},
        "checkpoint_seconds": 0.0,
    }

    def stop(end: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run_config(resolve(tables), folder, watchers=[stop], report=False)


def test_a_run_goes_on_with_the_same_code_to_the_same_bits(mine: Path, tmp_path: Path) -> None:
    stopped(tmp_path / "stopped", mine)
    done = resume(tmp_path / "stopped", report=False)
    config = resolve(read_tables(tmp_path / "stopped" / "config.toml"))
    straight = run_config(config, tmp_path / "straight", report=False)
    assert torch.equal(done.state.models, straight.state.models)


def test_changed_code_is_said_and_needs_a_word(mine: Path, tmp_path: Path) -> None:
    stopped(tmp_path / "run", mine)
    mine.write_text(MINE + "\n# another line\n")
    with pytest.raises(UserError, match=r"the method '.*mine.py:few' .* has changed .*--changed-code"):
        resume(tmp_path / "run", report=False)
    done = resume(tmp_path / "run", report=False, changed_code=True)
    hashes = [origin.sha256 for origin in done.summary.own]
    assert len(set(hashes)) == 2  # both are told
    kept = load_checkpoint(tmp_path / "run")
    assert kept is not None
    assert len(kept.extra["own"]) == 2


def test_changed_data_are_said_too(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    lines = ["who,x,y", *(f"{'ab'[i % 2]},{i},{'no' if i < 20 else 'yes'}" for i in range(40))]
    file.write_text("\n".join(lines))
    data = {"name": "table", "path": str(file), "label": "y", "client": "who"}
    run_config(
        resolve({"rounds": 1, "data": data, "engine": {"mode": "serial"}}), tmp_path / "run", report=False
    )
    file.write_text("\n".join(lines[:-2]))
    with pytest.raises(UserError, match=r"the data file 'table.csv' .* has changed"):
        resume(tmp_path / "run", rounds=2, report=False)
