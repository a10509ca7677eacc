"""Several methods on one fleet: what one of them does is not the others' fate."""

import json
from pathlib import Path
from typing import Any

import pytest

from covey import catalogue
from covey.cli import run as command
from covey.errors import RunError, UserError
from covey.methods.baselines import fedavg
from covey.progress import Due

QUICK = ["data.clients=4", "engine.mode=serial"]


def broken(train: Any, *, per_round: int = 2) -> Any:
    raise_later = fedavg(train, per_round=per_round)

    def select(now: Any) -> list[int]:
        if now.number == 2:
            raise ZeroDivisionError("a slip of the pen")
        return [0]

    from dataclasses import replace

    return replace(raise_later, select=select)


def test_compare_goes_on_when_one_method_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(catalogue.METHODS.builtin, "broken", f"{__name__}:broken")
    with pytest.raises(
        RunError, match=r"1 of 3 methods failed: broken: ZeroDivisionError: a slip of the pen"
    ):
        command.compare(["fedavg", "broken", "local"], set_=QUICK, out=tmp_path / "c", rounds=2)
    for name in ("fedavg", "local"):
        assert json.loads((tmp_path / "c" / name / "summary.json").read_text())["finished"]
    page = (tmp_path / "c" / "report.html").read_text()
    assert "2 methods compared" in page
    shown = capsys.readouterr().out
    assert "fedavg" in shown
    assert "local" in shown
    assert "broken" not in shown


def test_where_all_fail_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"2 of 2 methods failed: fedavg: .*cannot be trained.*; local: "):
        command.compare(["fedavg", "local"], set_=[*QUICK, "objective=regression"], out=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_method_that_is_not_known_is_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean fedavg"):
        command.compare(["local", "fedagv"], set_=QUICK, out=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_all_data_in_one_place_keep_some_for_validation_too(tmp_path: Path) -> None:
    """CAFA keeps a part of each client's data, so the centralised run does, of everybody's together."""
    command.compare(["cafa", "centralized"], set_=QUICK, out=tmp_path / "c", rounds=1)
    assert json.loads((tmp_path / "c" / "centralized" / "summary.json").read_text())["finished"]


def test_without_a_terminal_progress_is_a_few_lines() -> None:
    quick = Due(100, clock=lambda: 0.0)
    assert sum(quick(number) for number in range(1, 101)) == 21  # every fifth, and the first
    every = Due(100, every_round=True, clock=lambda: 0.0)
    assert sum(every(number) for number in range(1, 101)) == 100
    time = iter([0.0, 4.0, 9.0, 10.0, 11.0])
    slow = Due(1000, clock=lambda: next(time))
    assert [slow(number) for number in range(1, 6)] == [True, False, False, True, False]


def test_a_run_in_a_pipe_shows_its_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.run(set_=QUICK, out=tmp_path / "r", rounds=2)
    said = capsys.readouterr().err
    assert "fedavg: round 1 of 2: 4 clients" in said
    assert "fedavg: round 2 of 2" in said
