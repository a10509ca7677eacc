"""Classes, clients and real sites stand in the report under their names; who has none, under a number."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from covey.core.ledger import Problem
from covey.folder.about import About
from covey.folder.read import RunView, read_run
from covey.folder.summary import Losses
from covey.report.headline import headline
from covey.report.page import page, write_report
from covey.report.payload import page_data
from tests.report.made_up_run import MadeUp, write_run

CLASSES = ("healthy", "influenza", "pneumonia")
HOSPITALS = ("Saint Mary", "Charité", "<b>Mayo</b>")


def run_of(folder: Path) -> RunView:
    return read_run(write_run(folder, MadeUp(clients=3, labels=3, kinds=1, rounds=4, per_round=3)))


@pytest.fixture
def named(tmp_path: Path) -> RunView:
    return replace(run_of(tmp_path / "run"), about=About(classes=CLASSES, clients=HOSPITALS))


def test_the_page_is_told_what_everybody_is_called(named: RunView) -> None:
    (run,) = page_data([named])["runs"]
    assert run["fleet"]["labels"] == list(CLASSES)
    assert run["names"] == dict(zip("012", HOSPITALS, strict=True))
    assert run["classes"] == list(CLASSES)


def test_who_has_no_name_has_a_number(tmp_path: Path) -> None:
    (run,) = page_data([run_of(tmp_path / "run")])["runs"]
    assert run["fleet"]["labels"] == ["0", "1", "2"]
    assert run["names"] == {}


def test_real_sites_go_by_their_own_names(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    served = replace(run, summary=replace(run.summary, engine={"names": {"0": "north", "2": "south"}}))
    assert served.client_names == {0: "north", 2: "south"}
    assert "simulated time" in headline([run], ["run"])
    assert "simulated time" not in headline([served], ["run"])


def test_a_refused_reply_is_told_of_its_sender(named: RunView) -> None:
    losses = Losses(count=1, examples=(Problem(client=2, kind="train.sgd", round=1, reason="no"),))
    html = page([replace(named, summary=replace(named.summary, refused=losses))])
    assert "<td>&lt;b&gt;Mayo&lt;/b&gt;</td>" in html
    assert "<b>Mayo</b>" not in html


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium here")
def test_a_browser_draws_the_names(named: RunView, tmp_path: Path) -> None:
    write_report([named], tmp_path / "report.html")
    drawn = subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=5000",
            "--dump-dom",
            f"--user-data-dir={tmp_path / 'browser'}",
            (tmp_path / "report.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    texts = drawn.split("</script>")[0]
    for name in ("healthy", "influenza", "pneumonia", "Saint Mary", "Charité", "&lt;b&gt;Mayo&lt;/b&gt;"):
        assert f">{name}<" in texts, name
    assert ">client 0<" not in texts


def test_no_name_turns_the_direction_of_what_stands_beside_it(named: RunView, tmp_path: Path) -> None:
    rotated = replace(named, about=About(classes=("a", "\u202ecba", "c\u2066"), clients=HOSPITALS))
    write_report([rotated], tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert "\ufffdcba" in html
    assert not set(html) & {"\u202e", "\u2066"}
