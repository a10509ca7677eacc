"""Stored results say where they come from, and can be checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from covey.errors import UserError
from covey.report.seeds import Bound
from covey.runs.config import resolve
from experiments import execute, origin
from experiments.__main__ import app
from experiments.check import check_experiment, close
from experiments.reproduction import reproduce_experiment
from experiments.result import stored_place

TINY = """
title = "Tiny"
columns.accuracy = "last:global-test/accuracy"
columns."rounds to 2" = "to:round"
columns.share = "ratio:accuracy:A"
columns."seconds to 90 %" = "best90:seconds:global-test/accuracy"
base = { rounds = 2, target = 1.0, data = { clients = 4 }, train = { lr = 0.1 } }
scale.small.seeds = 2
[[run]]
name = "A"
set.method = { name = "fedavg", per_round = 2 }
[[run]]
name = "B"
set.method = { name = "fedavg", per_round = 3 }
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An experiment of four runs in a clean checkout, at commit abc."""
    (tmp_path / "experiments" / "p").mkdir(parents=True)
    (tmp_path / "experiments" / "p" / "tiny.toml").write_text(TINY)
    monkeypatch.setenv("COVEY_EXPERIMENTS", str(tmp_path / "experiments"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(origin, "changed", lambda: ())
    monkeypatch.setattr(execute, "changed", lambda: ())
    monkeypatch.setattr(origin, "commit", lambda: "abc")
    return "p/tiny"


def stored() -> dict:  # type: ignore[type-arg]
    return json.loads(stored_place("p/tiny", "small").read_text())


def change_one_number() -> None:
    result = stored()
    for cell in result["cells"]:
        if cell["column"] == "accuracy":
            cell["values"] = [value + 0.01 for value in cell["values"]]
    stored_place("p/tiny", "small").write_text(json.dumps(result))


def test_every_run_of_a_result_says_where_it_comes_from(tiny: str) -> None:
    reproduce_experiment(tiny, scale="small", seeds=None, out=None)
    runs = stored()["runs"]
    assert [(run["row"], run["seed"]) for run in runs] == [("A", 0), ("A", 1), ("B", 0), ("B", 1)]
    assert len({run["config"] for run in runs}) == 4
    assert {run["sources"] for run in runs} == {origin.sources()}
    assert {run["commit"] for run in runs} == {"abc"}
    assert all("lanes" in run["instructions"] and run["cpu_seconds"] >= 0 for run in runs)
    assert stored()["made"]["machine"] == origin.processor()


def test_what_missed_its_target_is_a_bound(tiny: str) -> None:
    result = reproduce_experiment(tiny, scale="small", seeds=1, out=None)
    (cell, _) = [cell for cell in result["cells"] if cell["column"] == "rounds to 2"]
    assert cell["values"] == [{"over": 2.0}]


def test_a_run_keeps_the_commit_that_made_it(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce_experiment(tiny, scale="small", seeds=1, out=None)
    monkeypatch.setattr(origin, "commit", lambda: "def")
    reproduce_experiment(tiny, scale="small", seeds=2, out=None)
    assert [(run["seed"], run["commit"]) for run in stored()["runs"]] == 2 * [(0, "abc"), (1, "def")]
    assert stored()["made"]["commit"] == "abc, def"


def test_a_run_of_changed_sources_is_not_taken_for_a_clean_one(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce_experiment(tiny, scale="small", seeds=1, out=None)
    for file in Path("runs").rglob("origin.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "commit": "abc+"}))
    monkeypatch.setattr(origin, "commit", lambda: "def")
    reproduce_experiment(tiny, scale="small", seeds=1, out=None)
    assert {run["commit"] for run in stored()["runs"]} == {"def"}


def test_a_half_run_of_other_sources_starts_anew(tmp_path: Path) -> None:
    config = resolve({"rounds": 1, "data": {"clients": 3}, "method": {"per_round": 2}})
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text(config.toml())
    (folder / "left over").write_text("of a run that was killed")
    origin.write_origin(folder, {"sources": "of long ago", "commit": "abc"})
    from contextlib import nullcontext

    execute.one_run(config, folder, lambda _: nullcontext(lambda _: None), None)
    assert not (folder / "left over").exists()
    assert origin.read_origin(folder)["sources"] == origin.sources()


def test_changed_sources_are_refused_before_anything_runs(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "changed", lambda: ("src/covey/core/round.py",))
    with pytest.raises(
        UserError, match=r"p/tiny is not stored from changed sources \(src/covey/core/round.py\)"
    ):
        reproduce_experiment(tiny, scale="small", seeds=1, out=None)
    assert not Path("runs").exists()
    reproduce_experiment(tiny, scale="small", seeds=1, out=Path("try"))
    assert not stored_place("p/tiny", "small").exists(), "a try stores nothing"


def test_a_check_finds_the_same_numbers(tiny: str) -> None:
    reproduce_experiment(tiny, scale="small", seeds=None, out=None)
    check = check_experiment(tiny, "small")
    assert (check.differs, check.changed) == ([], [])
    assert set(check.stored) == {"accuracy", "rounds to 2"}, "comparisons are of two runs"
    change_one_number()
    assert check_experiment(tiny, "small").differs == ["accuracy"]


def test_a_result_of_an_older_default_is_the_same_with_that_default(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made when guard.norm was 1, say: today other updates are shortened, and the numbers are others."""
    file, many = Path("experiments/p/tiny.toml"), TINY.replace("clients = 4", "clients = 12")
    many = many.replace("per_round = 2", "per_round = 10").replace("per_round = 3", "per_round = 12")
    file.write_text(many.replace("base = {", "base = { guard = { norm = 1.0 },"))
    reproduce_experiment(tiny, scale="small", seeds=1, out=None)
    file.write_text(many)
    assert "accuracy" in check_experiment(tiny, "small").differs
    monkeypatch.setattr("experiments.check.GUARD_BEFORE", 1.0)
    done = CliRunner().invoke(app, ["reproduce", tiny, "--check"])
    assert done.exit_code == 0
    assert "the same numbers with guard.norm = 1, the default when it was made" in done.output


def test_the_command_says_what_differs(tiny: str) -> None:
    reproduce_experiment(tiny, scale="small", seeds=1, out=None)
    assert CliRunner().invoke(app, ["reproduce", tiny, "--check"]).exit_code == 0
    change_one_number()
    Path("experiments/p/tiny.toml").write_text(TINY.replace("lr = 0.1", "lr = 0.2"))
    done = CliRunner().invoke(app, ["reproduce", tiny, "--check"])
    assert done.exit_code == 1
    assert "differs: accuracy" in done.output
    assert "config: stored" in done.output


def test_a_whole_number_is_the_same_as_it_is_stored() -> None:
    """Stored numbers are read as floats; a count that a study gives again is an int."""
    assert close(8.0, 8)
    assert not close(8.0, 9)
    assert close(Bound(5.0), Bound(5.0))
    assert not close(Bound(5.0), 5.0)
    assert not close(Bound(5.0), Bound(5.0, "under"))
    assert close(None, None)
    assert not close(None, 0.0)
