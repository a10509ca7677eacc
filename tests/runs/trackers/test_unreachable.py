"""A tracker that does not answer holds up no run, and no password of it is kept or said."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from covey.errors import UserError
from covey.runs import tracking
from covey.runs.config import resolve
from covey.runs.run import run_config
from covey.settings.passwords import without_password

SLOW = """
import threading

held = threading.Event()

class Slow:
    def __init__(self, *, where: str = "begin"):
        self.where = where

    def begin(self, run):
        if self.where == "begin":
            held.wait(60)

    def log(self, number, values):
        if self.where == "log":
            held.wait(60)

    def end(self, summary):
        pass
"""


def tables(tracker: object) -> dict[str, object]:
    return {"rounds": 2, "data": {"clients": 4}, "train": {"batches": 1}, "tracker": [tracker]}


@pytest.mark.parametrize(
    ("where", "sentences"),
    [
        (
            "begin",
            [
                "has not answered in 0.1 s; the run continues",
                "has not been told everything: log the run later with covey",
            ],
        ),
        ("log", ["has not been told everything: log the run later with covey report"]),
    ],
)
def test_one_that_never_answers_is_said_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, sentences: list[str]
) -> None:
    monkeypatch.setattr(tracking, "BEGIN", 0.1 if where == "begin" else 60.0)
    monkeypatch.setattr(tracking, "END", 0.1)
    (tmp_path / "slow.py").write_text(SLOW)
    said: list[str] = []
    settings = {"name": f"{tmp_path / 'slow.py'}:Slow", "where": where}
    done = run_config(resolve(tables(settings)), tmp_path / "run", say=said.append, report=False)
    assert done.state.round == 2
    told = [words for words in said if words.startswith("tracker")]
    assert [sentence in words for sentence, words in zip(sentences, told, strict=True)] == [True] * len(told)


@pytest.fixture
def dead_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_mlflow_at_a_dead_port_is_said_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead_port: int
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ann:s3cret@127.0.0.1:{dead_port}")
    monkeypatch.setattr(tracking, "BEGIN", 60.0)
    said: list[str] = []
    done = run_config(resolve(tables("mlflow")), tmp_path / "run", say=said.append)
    assert done.state.round == 2
    (sentence,) = [words for words in said if "tracker" in words]
    assert "it is told nothing more; the run continues" in sentence
    assert "s3cret" not in sentence
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or b"s3cret" not in path.read_bytes()


def test_a_server_that_takes_the_call_and_says_nothing_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setattr(tracking, "BEGIN", 0.2)
    monkeypatch.setattr(tracking, "END", 0.2)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        uri = f"http://127.0.0.1:{mute.getsockname()[1]}"
        said: list[str] = []
        run_config(
            resolve(tables({"name": "mlflow", "uri": uri})), tmp_path / "run", say=said.append, report=False
        )
        assert sum("tracker" in words for words in said) == 2
        waiting = [thread for thread in threading.enumerate() if thread.name == "tracker mlflow"]
        assert waiting, "it is not waited for"
        assert all(thread.daemon for thread in waiting)


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://ann:s3cret@db.example/runs",
        "https://ann:s3/cret@host",
        "http://ann:p@s3cret@host:5000",
        "https://host/api?token=s3cret",
        "https://host/api?x=1&access_token=s3cret",
        "https://s3cret@host:5000/path",
        "http://s3cret@host",
        "mysql+pymysql://:s3cret@host/x",
    ],
)
def test_a_password_in_a_setting_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(
        UserError, match=r"tracker\[0\].uri is '.*' with a password, which would be written"
    ) as why:
        resolve(tables({"name": "mlflow", "uri": uri}))
    assert "cret" not in str(why.value)


@pytest.mark.parametrize(
    "uri",
    [
        "http://host:5000/a@b",
        "sqlite:////home/a:b/c.db",
        "file:///x",
        "postgresql://ann@db/x",
        "http://host?a=b",
    ],
)
def test_other_addresses_are_left_as_they_are(uri: str) -> None:
    assert without_password(uri) == uri
    resolve(tables({"name": "mlflow", "uri": uri}))


def test_the_password_of_the_environment_is_not_kept_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    from covey.runs.trackers.mlflow import MLflow

    store = f"sqlite:///{tmp_path / 'mlflow.db'}?password=s3cret"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    tracker = MLflow()
    assert tracker.uri == store
    run_config(resolve({**tables("mlflow")}), tmp_path / "run", report=False)
    kept = json.loads((tmp_path / "run" / "mlflow.json").read_text())
    assert kept["uri"] == without_password(store)
