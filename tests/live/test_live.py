"""The live page's server: what it tells of runs in progress and of finished ones, and to whom."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.cli.watch import secret_in
from covey.config import resolve
from covey.errors import UserError
from covey.live import following
from covey.live.folder import RunsFolder, locked_inodes, run_folders
from covey.live.following import Following
from covey.live.table import table_of
from covey.report.folder import read_run
from covey.runs import run_config

SMALL = {"rounds": 3, "data": {"name": "digits", "clients": 4}, "train": {"epochs": 1}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for name, lr in (("a", 0.1), ("deep/b", 0.01)):
        run_config(resolve({**SMALL, "train": {"epochs": 1, "lr": lr}}), root / name, report=False)
    return root


def unfinished(root: Path) -> Path:
    """A run as it lies there while it goes on: the journal of five rounds of three clients."""
    folder = root / "live"
    folder.mkdir()
    (folder / "config.toml").write_text(
        'rounds = 10\nseed = 3\n[method]\nname = "covey"\n[data]\nname = "digits"\n'
    )
    lines = [[-1, 0.0, 0, 0, -1, "data", "label:1", 5.0]]
    for number in range(1, 6):
        lines += [[number, 2.0 * number, 100 * number, c, 0, "local-test", "accuracy", 0.5] for c in range(3)]
        lines += [[number, 2.0 * number, 100 * number, c, c % 2, "groups", "group", c % 2] for c in range(3)]
        lines += [[number, 2.0 * number, 100 * number, c, -1, "fleet", "busy", 1.0] for c in range(2)]
        lines += [
            [number, 2.0 * number, 100 * number, -1, -1, "fleet", "messages:train.sgd", 4.0],
            [number, 2.0 * number, 100 * number, -1, -1, "local-test", "accuracy-mean", number / 10],
        ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_runs_are_found_wherever_they_lie(runs: Path) -> None:
    assert sorted(name for name, _ in run_folders(runs)) == ["a", "deep/b"]
    assert [name for name, _ in run_folders(runs / "a")] == ["a"]


def test_a_finished_run_has_the_numbers_of_its_summary(runs: Path) -> None:
    folder = RunsFolder(runs)
    changed, gone = folder.refresh()
    assert (len(changed), gone) == (2, [])
    assert folder.refresh() == ([], [])  # nothing is read twice
    table = table_of(folder.runs.values())
    row = next(row for row in table["runs"] if row["id"] == "a")
    view = read_run(runs / "a")
    assert (row["state"], row["round"], row["bytes"]) == ("finished", 3, view.summary.cost.bytes)
    column = table["metrics"].index("local-test/accuracy-mean")
    assert row["m"][column] == pytest.approx(view.summary.last["local-test/accuracy-mean"], abs=1e-5)
    assert table["settings"] == ["train.lr"]  # only what differs is told per run


def test_a_run_in_progress_is_read_off_the_end_of_its_journal(tmp_path: Path) -> None:
    journal = unfinished(tmp_path) / "metrics.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole[: len(whole) // 2])
    following = Following(path=journal)
    assert following.catch_up()
    half = following.round
    journal.write_bytes(whole)
    assert following.catch_up()
    assert not following.catch_up()
    assert half < following.round == 5
    assert following.last == {"local-test/accuracy-mean": 0.5}
    assert [point[0] for point in following.curves["local-test/accuracy-mean"]] == [1, 2, 3, 4, 5]
    assert following.group_sizes() == {0: 2, 1: 1}
    assert (following.seconds, following.sent, following.messages) == (10.0, 500, 20)
    assert following.busy[5] == 2
    journal.write_bytes(whole[:200])  # a run that went back to its checkpoint
    following.catch_up()
    assert following.round <= 1


def test_what_takes_long_to_read_is_told_in_parts(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunsFolder(runs)
    assert [len(folder.refresh(0.0)[0]), folder.more] == [1, True]
    assert [len(folder.refresh(0.0)[0]), folder.more] == [1, False]
    monkeypatch.setattr(following, "PIECE", 500)
    folder = RunsFolder(unfinished(tmp_path).parent)
    rounds = []
    while folder.more:
        folder.refresh(0.0)
        rounds.append(folder.runs["live"].about["round"])
    assert len(set(rounds)) > 2
    assert rounds == sorted(rounds)
    whole = RunsFolder(tmp_path)
    whole.refresh()
    assert folder.runs["live"].about == whole.runs["live"].about
    assert folder.runs["live"].metrics == whole.runs["live"].metrics


@pytest.mark.skipif(locked_inodes() is None, reason="the system does not tell its locks")
def test_who_holds_the_folder_is_running_and_time_left_follows_the_pace(tmp_path: Path) -> None:
    live = unfinished(tmp_path)
    now = [1000.0]
    folder = RunsFolder(tmp_path, clock=lambda: now[0])
    folder.refresh()
    assert folder.runs["live"].state == "stopped"
    place = os.open(live, os.O_RDONLY)
    fcntl.flock(place, fcntl.LOCK_EX)
    try:
        folder.refresh()
        run = folder.runs["live"]
        assert run.state == "running"
        assert run.about["working"] == 2
        assert run.about["groups"] == 2
        for number in range(6, 10):
            now[0] += 2
            with open(live / "metrics.jsonl", "a") as file:
                file.write(json.dumps([number, 20.0, 900, -1, -1, "local-test", "accuracy-mean", 0.9]) + "\n")
            os.utime(live / "metrics.jsonl", (now[0], time.time() + number))
            folder.refresh()
        assert run.about["round"] == 9
        assert run.about["left"] == pytest.approx(2.0, rel=0.3)
    finally:
        os.close(place)


def ask(root: Path, **options: object) -> Iterator[object]:
    from starlette.testclient import TestClient

    from covey.live.app import make_app

    with TestClient(make_app(root, **options), base_url="http://127.0.0.1") as client:  # type: ignore[arg-type]
        for _ in range(6000):
            if options.get("key") or client.get("/api/runs").json()["runs"]:
                break
            time.sleep(0.05)
        yield client


def test_the_server_gives_page_table_and_reports_to_this_machine_only(runs: Path) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("httpx")
    for client in ask(runs):
        page = client.get("/")
        assert "<!doctype html>" in page.text
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert {row["id"] for row in client.get("/api/runs").json()["runs"]} == {"a", "deep/b"}
        assert client.get("/api/run?id=a").json()["state"] == "finished"
        assert client.get("/api/run?id=../secret").status_code == 404
        assert "2 runs compared" in client.get("/report?run=a&run=deep/b").text
        assert client.get("/report?run=../../etc").status_code == 404
        assert client.get("/", headers={"host": "evil.example.org"}).status_code == 404


def test_nobody_without_the_key_sees_anything(runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("httpx")
    for client in ask(runs, key="a long password"):
        assert client.get("/").status_code == 401
        assert client.get("/api/runs", auth=("me", "wrong")).status_code == 401
        assert client.get("/", headers={"authorization": "Basic ?"}).status_code == 401
        right = base64.b64encode(b"me:a long password").decode()
        assert client.get("/", headers={"authorization": f"Basic {right}"}).status_code == 200
    file = tmp_path / "key"
    file.write_text("short")
    file.chmod(0o600)
    with pytest.raises(UserError, match="at least 12"):
        secret_in(file)
    file.chmod(0o644)
    with pytest.raises(UserError, match="can be read by others"):
        secret_in(file)
