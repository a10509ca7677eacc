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
from covey.errors import UserError
from covey.folder.read import read_run
from covey.report.live import following
from covey.report.live.folder import RunsFolder, locked_inodes, run_folders
from covey.report.live.following import Following
from covey.report.live.table import live_table
from covey.runs.config import resolve
from covey.runs.run import run_config

SMALL = {"rounds": 3, "data": {"name": "digits", "clients": 4}, "train": {"epochs": 1}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for name, lr in (("a", 0.1), ("deep/b", 0.01)):
        run_config(resolve({**SMALL, "train": {"epochs": 1, "lr": lr}}), root / name, report=False)
    return root


def unfinished(root: Path) -> Path:
    """A run as it lies there while it continues: the journal of five rounds of three clients."""
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
    table = live_table(folder.runs.values())
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


def test_a_run_that_a_tuner_ended_is_pruned_and_not_stopped(tmp_path: Path) -> None:
    live = unfinished(tmp_path)
    (live / "summary.json").write_text(of_finished(finished=False, pruned=True))
    folder = RunsFolder(tmp_path, clock=lambda: 10**12)
    folder.refresh()
    assert (folder.runs["live"].state, folder.runs["live"].problem) == ("pruned", "")


def deep(brackets: int) -> str:
    return "[" * brackets + "]" * brackets


def of_finished(**changes: object) -> str:
    """A finished run's summary with other values in it."""
    summary = {"schema": 1, "finished": True, "cost": {"messages": 1}, "last": {"local-test/loss": 1.0}}
    return json.dumps(summary | changes)


LINE = '[1, 1.0, 5, -1, -1, "local-test", "loss", 0.5]\n'
DAMAGES = [
    ("summary.json", of_finished(cost=[1, 2])),
    ("summary.json", of_finished(cost={"seconds": "long"})),
    ("summary.json", of_finished(cost={"messages": 10**400})),
    ("summary.json", of_finished(last=[1])),
    ("summary.json", of_finished(last={"local-test/loss": "low"})),
    ("summary.json", of_finished(last={"local-test/loss": 10**400})),
    ("summary.json", of_finished(last={"local-test/a:b": 1.0})),
    ("summary.json", of_finished(rounds_done="three")),
    ("summary.json", of_finished(notes=3)),
    ("summary.json", deep(100_000)),
    ("summary.json", "[]"),
    ("summary.json", None),
    ("metrics.jsonl", LINE.replace("0.5", '"text"')),
    ("metrics.jsonl", LINE.replace("[1,", '["one",')),
    ("metrics.jsonl", LINE.replace('"loss"', "3")),
    ("metrics.jsonl", LINE.replace("0.5", "1" + "0" * 400)),
    ("metrics.jsonl", LINE.replace("0.5", deep(50_000))),
    ("metrics.jsonl", "x" * 100_000),
    ("metrics.jsonl", None),
    ("config.toml", "a = " + deep(50_000)),
    ("config.toml", "rounds = 1" + "0" * 400),
    ("config.toml", "rounds = "),
    ("config.toml", None),
    ("status.json", "[]"),
    ("status.json", '{"now": [1]}'),
    ("status.json", deep(100_000)),
    ("status.json", None),
]


def damaged_beside(root: Path) -> Path:
    """A good run, and one for every damage."""
    unfinished(root)
    for number, (file, content) in enumerate(DAMAGES):
        folder = root / f"{number:02d}"
        folder.mkdir()
        (folder / "config.toml").write_text('rounds = 3\n[method]\nname = "fedavg"\n')
        (folder / "metrics.jsonl").write_text(LINE)
        (folder / file).unlink(missing_ok=True)
        if content is None:
            os.mkfifo(folder / file)  # who opens it waits for ever
        else:
            (folder / file).write_text(content)
    return root


def test_a_damaged_run_is_one_row_with_its_reason_and_takes_no_other_away(tmp_path: Path) -> None:
    folder = RunsFolder(damaged_beside(tmp_path))
    changed, _ = folder.refresh()
    assert len(changed) == len(DAMAGES) + 1
    rows = {row["id"]: row for row in live_table(folder.runs.values())["runs"]}
    assert (rows["live"]["state"], rows["live"]["problem"], rows["live"]["round"]) == ("stopped", "", 5)
    for number, (file, _) in enumerate(DAMAGES):
        row = rows[f"{number:02d}"]
        assert row["state"] == "damaged", DAMAGES[number]
        assert file in row["problem"], row["problem"]
        assert len(row["problem"]) < 400
    assert folder.refresh() == ([], [])  # and it is not said again and again


def test_a_run_that_was_mended_is_a_run_again(tmp_path: Path) -> None:
    journal = unfinished(tmp_path) / "metrics.jsonl"
    whole = journal.read_text()
    journal.write_text(LINE.replace("0.5", '"text"'))
    folder = RunsFolder(tmp_path)
    folder.refresh()
    assert folder.runs["live"].state == "damaged"
    journal.write_text(whole)
    os.utime(journal, (1, 1))
    folder.refresh()
    assert (folder.runs["live"].state, folder.runs["live"].problem) == ("stopped", "")
    assert folder.runs["live"].about["round"] == 5


def test_what_is_not_finite_is_null_wherever_a_browser_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("httpx")
    live = unfinished(tmp_path)
    (live / "config.toml").write_text('rounds = 9\n[method]\nname = "fedavg"\n[train]\nlr = nan\nmu = inf\n')
    for name, value in (("loss", "NaN"), ("loss-mean", "1e999")):
        with open(live / "metrics.jsonl", "a") as file:
            file.write(f'[5, 1.0, 5, -1, -1, "local-test", "{name}", {value}]\n')
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.toml").write_text('rounds = 9\n[method]\nname = "fedavg"\n')
    (other / "metrics.jsonl").write_text("")
    (other / "summary.json").write_text(
        of_finished(cost={"seconds": float("inf")}, last={"local-test/loss": float("nan")})
    )

    def strict(text: str) -> None:
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    for client in ask(tmp_path):
        for path in ("/api/runs", "/api/run?id=live", "/api/run?id=other"):
            answer = client.get(path)
            assert answer.status_code == 200
            strict(answer.text)


def test_who_does_not_listen_holds_up_nobody(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    import asyncio

    from covey.report.live.app import MOST_WAITING, Live

    async def told() -> tuple[int, list[str]]:
        live = Live(tmp_path)
        deaf: asyncio.Queue[str] = asyncio.Queue(maxsize=MOST_WAITING)
        keen: asyncio.Queue[str] = asyncio.Queue(maxsize=MOST_WAITING)
        live.listening |= {deaf, keen}
        heard = []
        for _ in range(5 * MOST_WAITING):
            live._tell(list(live.folder.runs.values()), [])
            heard.append(keen.get_nowait())
        assert deaf.qsize() <= MOST_WAITING
        while deaf.qsize() > 1:
            deaf.get_nowait()
        return len(heard), [*json.loads(deaf.get_nowait())]

    assert asyncio.run(told()) == (5 * 8, ["runs"])


def ask(root: Path, **options: object) -> Iterator[object]:
    from starlette.testclient import TestClient

    from covey.report.live.app import make_app

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
