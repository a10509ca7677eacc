"""The sentence on top of a comparison, the study's folder as a report, and what a result says of itself."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import covey
from covey.cli import main
from covey.report.replicas import odd_words, verdict


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "two"
    return covey.compare(
        ["fedavg", "local"], rounds=2, seeds=2, clients=4, processes=1, out=out, progress=False
    )


def test_two_seeds_are_not_tested(two):
    words = verdict(two.replicas)
    assert "has the highest accuracy" in words
    assert "2 seeds: not tested" in words
    assert two.best in words


def test_one_seed_says_so(tmp_path: Path):
    one = covey.compare(["fedavg", "local"], rounds=1, clients=4, out=tmp_path / "one", progress=False)
    assert verdict(one.replicas).endswith("; one seed, not tested.")
    assert "one seed, not tested" in (tmp_path / "one" / "report.html").read_text()


def test_a_studys_folder_is_a_report(two, monkeypatch, capsys):
    page = two.folder / "report.html"
    page.unlink()
    monkeypatch.setattr(sys, "argv", ["covey", "report", str(two.folder)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    assert "not tested" in page.read_text()


def test_a_run_knows_its_numbers_and_draws_itself(two, tmp_path: Path):
    run = two["fedavg"]
    assert 0 < run.accuracy <= run.best <= 1
    picture = run.plot(tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    assert picture._repr_svg_().startswith("<svg")


def test_of_several_runs_one_sentence_says_that_clients_stand_out(two):
    views = two.replicas.every
    assert odd_words(views) == ""
    told = replace(views[0].summary, notes={"odd clients": {"text": "1 client stands out"}})
    said = odd_words([replace(views[0], summary=told), *views[1:]])
    assert said.startswith("In 1 of 4 runs some clients' updates stand out")
