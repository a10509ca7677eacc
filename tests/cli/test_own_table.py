"""A hospital's file as its spreadsheet wrote it: ID, dates, decimal commas, umlauts and empty cells, to answers."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import covey
from covey.cli import main
from covey.cli.command import FleetOptions, RunOptions
from covey.cli.run import gathered_tables
from covey.runs.config import resolve

HEAD = ["Patient_ID", "Klinik", "Aufnahme", "Alter", "CRP [mg/l]", "Station", "krank"]
OPTIONS = ["--data", "patients.csv", "--label", "krank", "--client", "Klinik"]


def rows(count: int, seed: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        age, crp, ward = int(rng.integers(20, 90)), rng.gamma(2, 8), rng.choice(["er", "icu", "tagesklinik"])
        day = np.datetime64("2023-01-01") + int(rng.integers(0, 700))
        year, month, of_month = str(day).split("-")
        ill = "ja" if 0.06 * (age - 55) + 0.08 * (crp - 15) + (ward == "icu") > 0 else "nein"
        cells = [str(age), f"{crp:.1f}".replace(".", ","), str(ward)]
        kept = ["" if rng.random() < 0.08 else cell for cell in cells]
        clinic = ["Köln", "Lyon", "Graz"][number % 3]
        made.append([f"P{number:05d}", clinic, f"{of_month}.{month}.{year}", *kept, ill])
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, columns, lines in (
        ("patients.csv", HEAD, rows(240, 0)),
        ("new.csv", HEAD[:-1], [row[:-1] for row in rows(60, 1)]),
    ):
        text = "\n".join(";".join(row) for row in [columns, *lines]) + "\n"
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["covey", *words])
    with pytest.raises(SystemExit) as end:
        main()
    told = capsys.readouterr()
    return int(end.value.code or 0), " ".join((told.out + told.err).split())


def test_a_column_may_be_called_by_an_emoji() -> None:
    """Beyond the 65,536 characters that JSON writes as one escape, and TOML does not read as two."""
    options = FleetOptions(data=Path("patients.csv"), label="krank", client="Klinik 🏥")
    assert gathered_tables(None, options)["data"]["client"] == "Klinik 🏥"


def test_from_a_hospitals_file_to_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", *OPTIONS, "--rounds", "3", "--out", "run"]
    code, told = said(words, monkeypatch, capsys)
    assert code == 0
    for part in (
        "patients.csv, 3 clients by natural",
        "patients.csv is not UTF-8: it is read as cp1252",
        "patients.csv has decimal commas (first in the column 'CRP [mg/l]')",
        "left out, because they look like IDs: Patient_ID",
        "dates are read as Aufnahme.year, Aufnahme.month, Aufnahme.weekday",
        "empty cells in Alter, CRP [mg/l], Station are filled with the mean or the most frequent category",
    ):
        assert told.count(part) == 1, part
    assert json.loads(Path("run/summary.json").read_text())["dataset"] == "patients.csv"
    truth = [row[-1] for row in rows(60, 1)]
    answers = covey.load_models("run").predict("new.csv")
    assert np.mean(answers == np.array(truth)) > 0.75
    with open("new.csv", encoding="latin-1") as file:
        as_dicts = list(csv.DictReader(file, delimiter=";"))
    assert covey.load_models("run").predict(as_dicts).tolist() == answers.tolist()
    code, told = said(
        ["predict", "run", "new.csv", "--client", "Köln", "--out", "answers.csv"], monkeypatch, capsys
    )
    assert code == 0
    with open("answers.csv") as file:
        assert [row["answer"] for row in csv.DictReader(file)] == answers.tolist()
    (folder / "odd.csv").write_text(
        (folder / "new.csv").read_text("latin-1").replace("icu", "mond"), "latin-1"
    )
    code, told = said(
        ["predict", "run", "odd.csv", "--client", "Köln", "--out", "none.csv"], monkeypatch, capsys
    )
    assert code != 0
    assert "the column 'Station' holds 'mond' in row" in told
    assert not (folder / "none.csv").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "--label", "krank"], "--label and --client name columns of a file: add --data FILE.csv"),
        (["run", *OPTIONS, "--dataset", "digits"], "--data is patients.csv and --dataset is digits"),
        (
            ["run", "--data", "patients.csv"],
            "--label is missing: which column of patients.csv is to be predicted",
        ),
        (["look", "--data", "none.csv", "--label", "krank"], "none.csv does not exist"),
        (["compare", "fedavg", "--data", "patients.csv", "--label", "sick"], "has no column 'sick'"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing_behind(
    words: list[str],
    sentence: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, told = said(words, monkeypatch, capsys)
    assert code != 0
    assert sentence in told
    assert "Traceback" not in told
    assert not list(folder.glob("run*/*/*"))


def test_look_and_compare_take_the_same_options(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = said(["look", *OPTIONS], monkeypatch, capsys)
    assert code == 0
    assert "Köln" in told
    assert "Patient_ID" in told
    words = ["compare", "fedavg", "local", *OPTIONS, "--rounds", "1", "--out", "both"]
    code, told = said(words, monkeypatch, capsys)
    assert code == 0
    assert told.count("look like IDs: Patient_ID") == 1  # of the data, so once for all methods


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "tune", "look"])
def test_the_usual_settings_have_short_options(command: str) -> None:
    from typer.main import get_command

    from covey.cli import app

    names = {name for one in get_command(app).commands[command].params for name in one.opts}
    assert {"--clients", "--partition", "--alpha", *(["--lr"] if command != "look" else [])} <= names


def test_short_options_are_settings_and_set_counts_more() -> None:
    options = RunOptions(clients=20, partition="dir-class", alpha=0.3, lr=0.1, set_=["data.clients=10"])
    config = resolve(gathered_tables(None, options))
    assert config["data"]["clients"] == 10
    assert (config["partition"]["alpha"], config["train"]["lr"]) == (0.3, 0.1)


def test_tune_without_anything_to_tune_begins_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["covey", "tune"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "tune needs a method or a file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
