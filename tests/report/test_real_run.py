"""What a run really writes is what the report reads: a small run on digits, finished and stopped half way."""

import json
import math
import shutil
from pathlib import Path

import pytest

from covey.files import strict_json
from covey.folder.read import read_run
from covey.folder.summary import MEASURING, reach
from covey.report.page import page
from covey.runs.config import resolve
from covey.runs.run import run_config
from tests.report.made_up_run import MadeUp, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = {
        "rounds": 3,
        "target": 0.05,
        "data": {"name": "digits", "clients": 4},
        "method": {"name": "fedavg", "per_round": 3},
        "engine": {"mode": "serial"},
        "devices": {"dropout": 0.3},
    }
    place = tmp_path_factory.mktemp("run") / "fedavg"
    run_config(resolve(tables), place)
    return place


def test_the_summary_follows_from_the_rows(folder: Path) -> None:
    run = read_run(folder)
    assert run.summary.finished
    assert run.summary.rounds_done == 3
    for name, last in run.summary.last.items():
        assert run.rows.overall(name).value[-1] == last
    for name, best in run.summary.best.items():
        curve = run.rows.overall(name)
        assert curve.value[curve.round == best.round].tolist() == [best.value]
    (target,) = run.summary.targets
    assert target == reach(run.rows, target.metric, target.target)
    for kind, cost in run.summary.cost.by_kind.items():
        if not kind.endswith(MEASURING):
            assert run.rows.overall(f"fleet/messages:{kind}").value.sum() == cost.messages
    assert run.rows.bytes.max() == run.summary.cost.bytes


def no_constant(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


def test_every_file_is_strict_json(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text(), parse_constant=no_constant)
    kinds = {
        **dict.fromkeys(("schema", "parameters", "clients", "seed", "rounds", "rounds_done"), int),
        **dict.fromkeys(("covey", "name", "method", "dataset", "model"), str),
        **dict.fromkeys(("last", "best", "cost", "lost", "refused", "epsilon", "privacy", "engine"), dict),
        **dict.fromkeys(("notes", "serving"), dict),
        **dict.fromkeys(("targets", "own"), list),
        **dict.fromkeys(("finished", "pruned"), bool),
        "wall_seconds": float,
    }
    assert {name: type(value) for name, value in summary.items()} == kinds
    json.loads((folder / "about.json").read_text(), parse_constant=no_constant)


def test_what_is_not_finite_is_null_and_no_bound_is_unbounded(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "run", MadeUp(method="fedavg", clients=4, rounds=3))
    summary = json.loads((whole / "summary.json").read_text())
    summary["epsilon"] = {"0": 0.5, "1": math.inf}
    text = strict_json(summary)
    assert json.loads(text, parse_constant=no_constant)["epsilon"] == {"0": 0.5, "1": None}
    (whole / "summary.json").write_text(text)
    made = page([read_run(whole)])
    assert "unbounded" in made
    assert "inf-fold" not in made
    assert json.loads(strict_json([math.nan, (1.0, -math.inf)])) == [None, [1.0, None]]


def test_the_journal_of_the_same_run_tells_the_same(folder: Path, tmp_path: Path) -> None:
    whole = read_run(folder)
    shutil.copy(folder / "config.toml", tmp_path)
    rows = whole.rows
    with (tmp_path / "metrics.jsonl").open("w") as journal:
        for i in range(len(rows)):
            split, _, metric = rows.names[rows.name[i]].partition("/")
            at = [
                int(rows.round[i]),
                float(rows.seconds[i]),
                int(rows.bytes[i]),
                int(rows.client[i]),
                int(rows.group[i]),
            ]
            journal.write(json.dumps([*at, split, metric, float(rows.value[i])]) + "\n")
    stopped = read_run(tmp_path)
    assert not stopped.summary.finished
    for field in (
        "method",
        "dataset",
        "model",
        "seed",
        "rounds",
        "rounds_done",
        "clients",
        "last",
        "best",
        "targets",
    ):
        assert getattr(stopped.summary, field) == getattr(whole.summary, field), field
    assert stopped.summary.cost.bytes == whole.summary.cost.bytes
    assert stopped.summary.cost.seconds == pytest.approx(whole.summary.cost.seconds)


def test_the_run_wrote_its_own_page(folder: Path) -> None:
    assert (folder / "report.html").read_text(encoding="utf-8") == page([read_run(folder)])


def test_the_page_says_how_heterogeneous_the_clients_are(tmp_path: Path) -> None:
    config = resolve({"rounds": 1, "partition": {"name": "shards"}, "data": {"clients": 8}})
    run_config(config, tmp_path / "run")
    found = read_run(tmp_path / "run")
    assert found.rows.overall("data/label_skew").value[0] > 0.35
    text = page([found])
    assert "How heterogeneous the clients are" in text
    assert "clients hold different labels" in text
