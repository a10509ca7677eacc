"""The process dies at a change of the run folder, at each of them in turn: the run continues, bit-identically."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from covey.errors import UserError
from covey.files import failing_at
from covey.runs.config import resolve
from covey.runs.results import Run
from covey.runs.run import resume, run_or_resume
from tests.hostile.damaged_folders import Killed
from tests.runs.test_run import same

TABLES = {
    "rounds": 2,
    "checkpoint_seconds": 0.0,
    "checkpoints": 2,
    "data": {"name": "digits", "clients": 2},
    "method": {"name": "haccs", "per_round": 2},
    "train": {"batches": 1},
    "engine": {"mode": "serial"},
}


class Count:
    """A fail point that counts, and kills at the change of a number."""

    def __init__(self, last: int = -1) -> None:
        self.last, self.seen = last, list[str]()

    def __call__(self, what: str, path: Path) -> None:
        if len(self.seen) == self.last:
            raise Killed
        self.seen.append(f"{what} {path.name}")


def begun(folder: Path) -> Run:
    return run_or_resume(resolve(TABLES), folder, report=False)


def extended(folder: Path) -> Run:
    return resume(folder, rounds=3, report=False)


def again(folder: Path) -> Run:
    """What a user does after a crash: --resume, or the same command where that says so."""
    return resume(folder, report=False) if (folder / "config.toml").exists() else begun(folder)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("straight")
    short = begun(folder / "short")
    shutil.copytree(folder / "short", folder / "long")
    return {"begun": short, "extended": extended(folder / "long")}


def changes(act: Callable[[Path], Run], folder: Path) -> list[str]:
    with failing_at(count := Count()):
        act(folder)
    return count.seen


def killed_at(place: int, act: Callable[[Path], Run], folder: Path) -> None:
    with failing_at(Count(place)), pytest.raises(Killed):
        act(folder)


def test_a_run_that_dies_at_a_change_goes_on_to_the_same_bits(
    tmp_path: Path, straight: dict[str, Run]
) -> None:
    """At some of them; the slow test dies at each."""
    there = changes(begun, tmp_path / "count")
    assert {"append to metrics.jsonl", "begin config.toml", "put in place checkpoint.json"} < set(there)
    for place in [*range(1, 17, 4), *range(17, len(there), 9)]:
        killed_at(place, begun, tmp_path / f"{place}")
        same(again(tmp_path / f"{place}"), straight["begun"])


@pytest.mark.parametrize("file", ["about.json", "000000.safetensors", "checkpoint.json"])
def test_killed_while_it_is_begun_a_run_is_resumed(
    tmp_path: Path, straight: dict[str, Run], file: str
) -> None:
    place = changes(begun, tmp_path / "count").index(f"put in place {file}")
    killed_at(place, begun, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint.json").exists()
    same(resume(tmp_path / "run", report=False), straight["begun"])


def test_killed_before_there_are_settings_the_same_command_begins_anew(
    tmp_path: Path, straight: dict[str, Run]
) -> None:
    place = changes(begun, tmp_path / "count").index("put in place config.toml")
    killed_at(place, begun, tmp_path / "run")
    with pytest.raises(UserError, match=r"was stopped before its run had begun: begin it anew"):
        resume(tmp_path / "run")
    same(begun(tmp_path / "run"), straight["begun"])


@pytest.mark.slow
@pytest.mark.parametrize("what", ["begun", "extended"])
def test_a_run_that_dies_at_any_change_goes_on_to_the_same_bits(
    tmp_path: Path, straight: dict[str, Run], what: str
) -> None:
    """And dies once more where it continues."""
    act = begun if what == "begun" else extended

    def ready(name: str) -> Path:
        if what == "extended":
            shutil.copytree(straight["begun"].folder, tmp_path / name)
        return tmp_path / name

    for place in range(len(changes(act, ready("count")))):
        folder = ready(f"{place}")
        killed_at(place, act, folder)
        with failing_at(Count(place % 7)), contextlib.suppress(Killed):
            again(folder)
        goes_on = again if what == "begun" else extended
        same(goes_on(folder), straight[what])
