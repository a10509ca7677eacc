"""The page stands alone, escapes every name, holds every series and says the numbers of the data."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.errors import RunError, UserError
from covey.folder.read import RunView, read_run
from covey.report.page import SCRIPTS, page, part_of_page, write_report
from tests.report.made_up_run import MadeUp, known_notes, records_of, write_run

EVIL = '</script><script>alert("x")</script><b>&'


class Reader(HTMLParser):
    """Checks that every element is closed in order; keeps attributes, texts and the scripts."""

    VOID = frozenset({"meta", "input", "br"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))


def read_page(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert isinstance(data, dict)
    return data


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunView]:
    folder = tmp_path_factory.mktemp("runs")
    plain = MadeUp(method="fedavg", top=0.7)
    grouped = MadeUp(method="haccs", groups=4, seed=2, epsilon=0.1, notes=known_notes(40, 4))
    return [read_run(write_run(folder / made.method, made)) for made in (plain, grouped)]


@pytest.mark.parametrize("count", [1, 2])
def test_the_page_parses_and_needs_no_network(runs: list[RunView], count: int) -> None:
    reader = read_page(page(runs[-count:]))
    for tag, name, value in reader.attributes:
        if name in ("src", "href", "action", "srcset", "poster", "data"):
            assert value.startswith("#"), (tag, name, value)
    for tag, text in reader.texts:
        if tag == "style":
            assert "@import" not in text
            assert "url(" not in text
        if tag == "script":
            assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert ("meta", "http-equiv", "Content-Security-Policy") in reader.attributes


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    notes = {**known_notes(6, 2), EVIL: {EVIL: EVIL}, "privacy": {"text": EVIL}}
    notes["scatter"]["title"] = EVIL
    made = MadeUp(
        method=EVIL.replace('"', "'"), name=EVIL.replace('"', "'"), clients=6, rounds=3, notes=notes
    )
    run = read_run(write_run(tmp_path / "run", made))
    clean = page(
        [
            read_run(
                write_run(
                    tmp_path / "clean", replace(made, method="fedavg", name="", notes=known_notes(6, 2))
                )
            )
        ]
    )
    for runs in ([run], [run, run]):
        text = page(runs)
        reader = read_page(text)
        assert text.count("<script") == clean.count("<script") == 2
        assert "alert(" in text
        assert not any(tag == "b" for tag, _ in reader.texts)
    assert data_of(page([run]))["runs"][0]["label"] == made.name


def test_every_series_is_in_the_page(runs: list[RunView]) -> None:
    data = data_of(page(runs))
    for run, shown in zip(runs, data["runs"], strict=True):
        assert set(shown["curves"]) == set(run.summary.last) <= set(data["metrics"])
        for name in run.summary.last:
            curve = run.rows.overall(name)
            assert shown["curves"][name]["all"] == pytest.approx(curve.value.tolist(), rel=1e-4)
            assert shown["clock"]["bytes"] == curve.bytes.tolist()
    assert set(data["runs"][1]["curves"]["local-test/accuracy-mean"]["groups"]) == {"0", "1", "2", "3"}


def test_the_band_holds_the_middle_80_percent_of_clients(runs: list[RunView]) -> None:
    curve = data_of(page(runs[:1]))["runs"][0]["curves"]["local-test/accuracy-mean"]
    records = records_of(MadeUp(method="fedavg", top=0.7))
    last = [r[7] for r in records if r[0] == 60 and r[5:7] == ["local-test", "accuracy"]]
    assert curve["low"][-1] == pytest.approx(np.quantile(last, 0.1), rel=1e-4)
    assert curve["high"][-1] == pytest.approx(np.quantile(last, 0.9), rel=1e-4)


def test_clients_show_their_labels_and_how_often_they_worked(runs: list[RunView]) -> None:
    fleet = data_of(page(runs[:1]))["runs"][0]["fleet"]
    records = records_of(MadeUp(method="fedavg", top=0.7))
    for column, (client,) in enumerate(fleet["ids"]):
        held = [r[7] for r in records if r[3] == client and r[6].startswith("label:")]
        assert fleet["counts"][column] == held
        assert fleet["worked"][column] == sum(1 for r in records if r[3] == client and r[6] == "busy")


def test_the_timeline_counts_from_the_start_of_each_round(runs: list[RunView]) -> None:
    timeline = data_of(page(runs[:1]))["runs"][0]["timeline"]
    records = records_of(MadeUp(method="fedavg", top=0.7))
    busy = {r[3]: r[7] for r in records if r[0] == 5 and r[6] == "busy"}
    shown = next(r for r in timeline["rounds"] if r["round"] == 5)
    assert dict(zip(shown["client"], shown["busy"], strict=True)) == pytest.approx(busy, rel=1e-4)
    assert shown["start"] == [0] * len(busy)
    assert shown["busy"] == sorted(shown["busy"], reverse=True)
    assert shown["end"] == pytest.approx(max(busy.values()), rel=1e-4)


def test_messages_add_up_without_evaluation(runs: list[RunView]) -> None:
    clock = data_of(page(runs[:1]))["runs"][0]["clock"]
    records = records_of(MadeUp(method="fedavg", top=0.7))
    assert clock["messages"][-1] == sum(r[7] for r in records if r[6] == "messages:train.sgd")


def test_the_headline_says_the_numbers_of_the_data(runs: list[RunView]) -> None:
    alone = [text for _, text in read_page(page(runs[:1])).texts]
    both = [text for _, text in read_page(page(runs)).texts]
    for run in runs:
        for name in ("global-test/accuracy", "local-test/accuracy-mean", "local-test/accuracy-worst10"):
            last, best = run.summary.last[name], run.summary.best[name]
            assert f"{100 * last:.2f}%" in both
            assert f"{100 * best.value:.2f}% @ {best.round}" in both
            if run is runs[0]:
                assert f"{100 * last:.2f}%" in alone
                assert f"best {100 * best.value:.2f}% in round {best.round}" in alone
    reached = runs[1].to_target("local-test/accuracy-mean", 0.8)
    assert f"{reached.round} rounds" in both


def test_losses_privacy_notes_and_configuration_are_shown(runs: list[RunView]) -> None:
    texts = " ".join(text for _, text in read_page(page(runs[1:])).texts)
    assert f"{runs[1].summary.lost.count} replies were lost and 1 refused." in texts
    assert "the reply holds a value that is not finite" in texts
    assert "Privacy budget spent by the clients" in texts
    assert "Laplace noise" in texts
    assert "weights by round" in texts
    assert runs[1].config in texts
    kinds = [note["kind"] for note in data_of(page(runs[1:]))["runs"][0]["notes"]]
    assert kinds == ["silhouette", "scatter", "labels", "graph", "spread"]


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", MadeUp(clients=5, rounds=3, finished=False))
    write_report([read_run(folder)], folder / "report.html")
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "fedavg is unfinished: 3 of 3 rounds so far." in text
    read_page(text)
    assert sorted(file.name for file in folder.iterdir()) == ["config.toml", "metrics.jsonl", "report.html"]


def test_a_run_with_nothing_measured_yet_still_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('method = "fedavg"\n')
    (tmp_path / "metrics.jsonl").write_text("")
    read_page(page([read_run(tmp_path)]))


def test_a_hundred_clients_over_200_rounds_stay_under_a_megabyte(tmp_path: Path) -> None:
    made = MadeUp(clients=100, rounds=200, groups=4, per_round=100, notes=known_notes(100, 4))
    write_report([read_run(write_run(tmp_path / "run", made))], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 1_000_000


def test_a_large_fleet_and_a_long_run_are_thinned_and_it_is_said(tmp_path: Path) -> None:
    wide = MadeUp(clients=1200, rounds=2, kinds=6, per_round=400)
    data = data_of(page([read_run(write_run(tmp_path / "wide", wide))]))["runs"][0]
    assert len(data["fleet"]["ids"]) == 480
    assert (
        sum(ids[2] if len(ids) == 3 else 1 for ids in data["fleet"]["ids"])
        == data["fleet"]["clients"]
        == 1200
    )
    held = sum(r[7] for r in records_of(wide) if r[6].startswith("label:"))
    assert sum(map(sum, data["fleet"]["counts"])) == held
    assert (len(data["timeline"]["rounds"][0]["client"]), data["timeline"]["rounds"][0]["of"]) == (160, 400)
    long = read_run(write_run(tmp_path / "long", MadeUp(clients=2, rounds=1500)))
    data = data_of(page([long]))["runs"][0]
    kept = data["clock"]["round"]
    assert (kept[0], kept[-1], data["rounds"]) == (0, 1500, 1501)
    assert len(kept) <= 600 + len(long.summary.best)
    assert {best.round for best in long.summary.best.values()} <= set(kept)


def test_a_page_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one run folder"):
        write_report([], tmp_path / "report.html")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_can_be_put_inside_a_page(name: str) -> None:
    text = part_of_page(name)
    assert "</" not in text
    assert "innerHTML" not in text
    assert "eval(" not in text


def test_a_page_that_cannot_be_written_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", MadeUp(rounds=2)))
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "nowhere" / "report.html", tmp_path / "folder"):
        with pytest.raises(RunError, match=r"cannot be written: .*; the runs themselves are whole"):
            write_report([run], place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "run"]
