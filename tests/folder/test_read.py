"""A run folder is read as documented; whatever is wrong with one is said in one sentence."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from covey.errors import UserError
from covey.folder.about import read_about
from covey.folder.read import read_run
from covey.report.page import write_report
from tests.report.made_up_run import MadeUp, records_of, summary_of, write_run

SMALL = MadeUp(clients=6, rounds=4, groups=2, per_round=3)


def test_a_finished_run_gives_back_every_measurement(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", SMALL))
    assert len(run.rows) == len(records_of(SMALL))
    assert run.summary.finished
    assert run.label == "fedavg"
    curve = run.rows.overall("local-test/accuracy-mean")
    wanted = [r[7] for r in records_of(SMALL) if r[5:7] == ["local-test", "accuracy-mean"] and r[4] == -1]
    assert curve.value.tolist() == wanted
    assert curve.round.tolist() == [0, 1, 2, 3, 4]
    assert run.summary.last["local-test/accuracy-mean"] == wanted[-1]


@pytest.mark.parametrize("scale", [[[0.5], [1.0], [2.0]], [[0.5]], [0.5, 1.0]])
def test_a_scale_that_is_no_mean_and_deviation_is_a_damaged_file(tmp_path: Path, scale: object) -> None:
    (tmp_path / "about.json").write_text(json.dumps({"inputs": {"scale": scale}}))
    with pytest.raises(UserError, match=r"about\.json is damaged"):
        read_about(tmp_path)


def test_rows_are_found_by_group_and_by_client(tmp_path: Path) -> None:
    rows = read_run(write_run(tmp_path / "run", SMALL)).rows
    assert {g: len(found) for g, found in rows.by_group("local-test/accuracy-mean").items()} == {0: 5, 1: 5}
    assert set(rows.by_client("local-test/accuracy").client.tolist()) == set(range(6))
    assert len(rows.of("local-test/no-such-metric")) == 0


def test_a_journal_alone_says_what_the_summary_would_say(tmp_path: Path) -> None:
    made = MadeUp(clients=6, rounds=4, groups=2, per_round=3, target=0.2, finished=False)
    run = read_run(write_run(tmp_path / "run", made))
    wanted = summary_of(made, records_of(made))
    assert not run.summary.finished
    assert (run.summary.method, run.summary.rounds, run.summary.rounds_done, run.summary.clients) == (
        "fedavg",
        4,
        4,
        6,
    )
    assert dict(run.summary.last) == wanted["last"]
    assert {name: {"value": b.value, "round": b.round} for name, b in run.summary.best.items()} == wanted[
        "best"
    ]
    assert run.summary.cost.bytes_up == wanted["cost"]["bytes_up"]
    assert run.summary.cost.seconds == pytest.approx(wanted["cost"]["seconds"])
    assert (
        run.summary.cost.by_kind["train.sgd"].messages == wanted["cost"]["by_kind"]["train.sgd"]["messages"]
    )
    assert run.summary.lost.count == wanted["lost"]["count"]
    (reached,) = run.summary.targets
    assert (reached.metric, reached.target) == ("local-test/accuracy-mean", made.target)
    assert (reached.round, reached.bytes) == (wanted["targets"][0]["round"], wanted["targets"][0]["bytes"])


def test_a_journal_may_end_in_the_middle_of_a_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", MadeUp(clients=3, rounds=2, finished=False))
    whole = len(read_run(folder).rows)
    with (folder / "metrics.jsonl").open("a") as journal:
        journal.write('[3, 12.5, 400, -1, -1, "global-t')
    assert len(read_run(folder).rows) == whole


def test_a_round_measured_again_after_a_restart_counts_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", MadeUp(clients=3, rounds=2, finished=False))
    with (folder / "metrics.jsonl").open("a") as journal:
        journal.write('[2, 12.5, 400, -1, -1, "global-test", "accuracy", 0.75]\n')
    curve = read_run(folder).rows.overall("global-test/accuracy")
    assert curve.round.tolist() == [0, 1, 2]
    assert curve.value[-1] == 0.75


def test_a_value_that_is_not_finite_is_read_from_null(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", MadeUp(clients=3, rounds=1, finished=False))
    with (folder / "metrics.jsonl").open("a") as journal:
        journal.write('[2, 12.5, 400, -1, -1, "global-test", "loss", null]\n')
    run = read_run(folder)
    assert run.rows.overall("global-test/loss").value[-1] != run.rows.overall("global-test/loss").value[-1]
    assert run.summary.best["global-test/loss"].round < 2


def damage(folder: Path, how: str) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    match how:
        case "no rows":
            (folder / "metrics.parquet").unlink()
        case "no config":
            (folder / "config.toml").unlink()
        case "broken config":
            (folder / "config.toml").write_text("name = ")
        case "no summary":
            (folder / "summary.json").unlink()
        case "broken summary":
            (folder / "summary.json").write_text('{"schema": 1, "la')
        case "not a summary":
            (folder / "summary.json").write_text("[1, 2]")
        case "newer schema":
            (folder / "summary.json").write_text(json.dumps(summary | {"schema": 2}))
        case "wrong field":
            (folder / "summary.json").write_text(json.dumps(summary | {"last": [1, 2]}))
        case "wrong text":
            (folder / "summary.json").write_text(json.dumps(summary | {"method": 3}))
        case "wrong notes":
            (folder / "summary.json").write_text(json.dumps(summary | {"notes": 3}))
        case "cut parquet":
            file = folder / "metrics.parquet"
            file.write_bytes(file.read_bytes()[:-40])
        case "missing column":
            table = pq.read_table(folder / "metrics.parquet")
            pq.write_table(table.drop_columns(["value"]), folder / "metrics.parquet")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("no rows", "neither metrics.parquet nor metrics.jsonl"),
        ("no config", "config.toml is missing"),
        ("broken config", "cannot be read as TOML"),
        ("no summary", "summary.json is missing"),
        ("broken summary", "cannot be read as JSON"),
        ("not a summary", "not the summary of a run"),
        ("newer schema", "has schema 2; this version reads schema 1"),
        ("wrong field", "the field 'last' cannot be read"),
        ("wrong text", "the field 'method' cannot be read"),
        ("wrong notes", "the field 'notes' cannot be read"),
        ("cut parquet", "cannot be read as the table of a run"),
        ("missing column", "the column 'value' is missing"),
    ],
)
def test_a_damaged_folder_is_one_clear_sentence(tmp_path: Path, how: str, words: str) -> None:
    folder = write_run(tmp_path / "run", SMALL)
    damage(folder, how)
    with pytest.raises(UserError) as caught:
        read_run(folder)
    sentence = str(caught.value)
    assert words in sentence
    assert str(folder) in sentence
    assert "\n" not in sentence


def test_a_bad_line_inside_a_journal_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", MadeUp(clients=3, rounds=1, finished=False))
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines[4] = "[1, 2]"
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="line 5"):
        read_run(folder)


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        read_run(tmp_path / "nothing")


def test_a_folder_may_have_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    """As every name with other letters than ASCII's is under LC_ALL=C."""
    folder = write_run(tmp_path / "run", SMALL).rename(tmp_path / "t\udcfcst")
    assert len(read_run(folder).rows)
    write_report([read_run(folder)], folder / "report.html")
    assert (folder / "report.html").stat().st_size
