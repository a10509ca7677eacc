"""A tracker of one's own is told of a run: begin, every round, end; a failing one never ends the run."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from covey.errors import UserError
from covey.runs.config import resolve
from covey.runs.run import Interrupted, resume, run_config

MINE = """
import json

class Lines:
    def __init__(self, *, file: str, fails_in: int = 0):
        self.file, self.fails_in = file, fails_in

    def told(self, *words):
        with open(self.file, "a") as out:
            out.write(json.dumps(words) + "\\n")

    def begin(self, run):
        self.told("begin", run.name, run.round, run.settings["data"]["name"], str(run.folder))

    def log(self, number, values):
        if number == self.fails_in:
            raise RuntimeError("the store is full")
        self.told("log", number, values["global-test/accuracy"], values["cost/bytes"])

    def end(self, summary):
        self.told("end", summary["finished"], summary["rounds_done"])
"""


@pytest.fixture
def told(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "told.jsonl"


def config(told: Path, **settings: object):
    tracker = {"name": f"{told.parent / 'mine.py'}:Lines", "file": str(told), **settings}
    return resolve({"rounds": 3, "data": {"clients": 4}, "tracker": [tracker]})


def lines(told: Path) -> list[list[object]]:
    return [json.loads(line) for line in told.read_text().splitlines()]


def test_a_tracker_is_told_of_begin_rounds_and_end(told: Path, tmp_path: Path) -> None:
    done = run_config(config(told), tmp_path / "run", report=False)
    assert [line[0] for line in lines(told)] == ["begin", "log", "log", "log", "end"]
    assert lines(told)[0][1:4] == ["fedavg seed 0", 0, "digits"]
    last = lines(told)[3]
    assert last[1:] == [
        3,
        done.summary.last["global-test/accuracy"],
        done.summary.cost.bytes,
    ]
    assert lines(told)[-1] == ["end", True, 3]
    written = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["tracker"]
    assert written[0]["fails_in"] == 0  # with every default
    assert [origin.kind for origin in done.summary.own] == ["tracker"]


def test_it_is_told_that_a_run_was_interrupted_and_goes_on(told: Path, tmp_path: Path) -> None:
    def stop(end) -> None:
        if end.state.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run_config(config(told), tmp_path / "run", watchers=[stop], report=False)
    before = len(lines(told))
    resume(tmp_path / "run", report=False)
    assert lines(told)[before - 1][:2] == ["end", False]
    done = lines(told)[before][2]
    assert [line[:2] for line in lines(told)[before + 1 :]] == [
        *(["log", number] for number in range(done + 1, 4)),
        ["end", True],
    ]


def test_a_tracker_that_fails_is_said_once_and_the_run_goes_on(told: Path, tmp_path: Path) -> None:
    said: list[str] = []
    done = run_config(config(told, fails_in=2), tmp_path / "run", say=said.append, report=False)
    assert done.state.round == 3
    (sentence,) = [line for line in said if "tracker" in line]
    assert "mine.py, line 17: RuntimeError: the store is full; it is told nothing more" in sentence
    assert [line[0] for line in lines(told)] == ["begin", "log"]


@pytest.mark.parametrize(
    ("tracker", "sentence"),
    [
        (["nobody"], "tracker[0] = 'nobody' is not known"),
        (3, "tracker is 3; allowed: a list of names and tables"),
        (
            [{"file": "x"}],
            "tracker[0] is {'file': 'x'}; allowed: the name of a tracker, or a table with its name",
        ),
    ],
)
def test_a_mistake_is_one_sentence(tracker: object, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        resolve({"tracker": tracker})
    assert str(error.value).startswith(sentence)


def test_a_run_that_nobody_tracks_has_no_line_about_it() -> None:
    assert "tracker" not in resolve({}).toml()
