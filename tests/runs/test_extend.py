"""A run that is given more rounds is, bit for bit, the longer run."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from covey.errors import UserError
from covey.files import write_atomically
from covey.folder.checkpoint import load_checkpoint
from covey.runs.config import resolve
from covey.runs.results import Run
from covey.runs.run import resume, run_config
from tests.hostile.damaged_folders import ENDS, run_until

TABLES = {"data": {"name": "digits", "clients": 4}, "method": {"name": "cafa", "per_round": 3}}
SERIAL = {"engine": {"mode": "serial"}}


def config(rounds: int, **more: object) -> object:
    return resolve({**TABLES, **SERIAL, "rounds": rounds, **more})


def same(a: Run, b: Run) -> None:
    assert torch.equal(a.state.models, b.state.models)
    assert replace(a.summary, wall_seconds=0) == replace(b.summary, wall_seconds=0)
    rows = [pq.read_table(done.folder / "metrics.parquet") for done in (a, b)]
    assert rows[0].equals(rows[1])
    assert (a.folder / "config.toml").read_text() == (b.folder / "config.toml").read_text()


def test_a_finished_run_goes_on_to_the_bits_of_a_straight_one(tmp_path: Path) -> None:
    straight = run_config(config(5), tmp_path / "straight")
    run_config(config(2), tmp_path / "run")
    longer = resume(tmp_path / "run", rounds=5)
    same(longer, straight)
    pages = [(tmp_path / name / "report.html").read_text() for name in ("run", "straight")]
    assert all("unfinished" not in page for page in pages)
    kept = load_checkpoint(tmp_path / "run")
    assert kept is not None
    assert kept.state.round == 5


def test_an_unfinished_run_is_given_more_rounds_or_fewer(tmp_path: Path) -> None:
    folder = run_until(tmp_path / "run", ENDS["killed"]())
    assert resume(folder, rounds=3, report=False).summary.rounds_done == 3
    assert json.loads((folder / "summary.json").read_text())["finished"]


def test_a_run_that_stopped_at_its_target_has_stopped(tmp_path: Path) -> None:
    stop = {"target": 0.01, "stop_at_target": True}
    straight = run_config(config(5, **stop), tmp_path / "straight", report=False)
    run_config(config(3, **stop), tmp_path / "run", report=False)
    same(resume(tmp_path / "run", rounds=5, report=False), straight)


def test_rounds_that_are_done_stay_done(tmp_path: Path) -> None:
    run_config(config(3), tmp_path / "run", report=False)
    with pytest.raises(UserError, match="rounds is 2, but 3 rounds are done"):
        resume(tmp_path / "run", rounds=2)
    assert resume(tmp_path / "run", rounds=3, report=False).summary.rounds_done == 3


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_killed_while_it_is_extended_it_is_one_run_or_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Killed before the journal, before the index and before config.toml are written."""
    straight = run_config(config(4), tmp_path / "straight", report=False)
    run_config(config(2), tmp_path / "run", report=False)
    done = 0

    def killed(path: Path, content: bytes | str) -> None:
        nonlocal done
        if done == writes:
            raise SystemExit
        done += 1
        write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("covey.runs.extend.write_atomically", killed)
        patch.setattr("covey.folder.checksums.write_atomically", killed)
        with pytest.raises(SystemExit):
            resume(tmp_path / "run", rounds=4, report=False)
    assert resume(tmp_path / "run", report=False).summary.rounds_done == 2
    same(resume(tmp_path / "run", rounds=4, report=False), straight)
