"""`covey.run` and `covey.compare`: names or objects, one folder that tells the truth, results to look at."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

import covey
from covey.cli.command import RunOptions
from covey.cli.run import gathered_tables
from covey.core.round import Method
from covey.data import from_tensors
from covey.errors import UserError
from covey.folder.read import read_run
from covey.methods.baselines import fedavg
from covey.runs import results
from covey.runs.config import resolve
from covey.settings.toml import read_tables
from covey.training.objective import Classification

SERIAL = {"mode": "serial"}
QUIET = {"progress": False, "report": False, "engine": SERIAL}


def blobs(shift: float = 3.0) -> covey.data.Dataset:
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 2
    return from_tensors(torch.randn(120, 4, generator=rng) + shift * y[:, None], y, name="blobs")


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def mine() -> Method:
    return fedavg(covey.Train(lr=0.2, epochs=1), per_round=2)


@covey.metric(higher_is_better=False)
def mistakes(outputs: Tensor, target: Tensor) -> float:
    return float((outputs.argmax(1) != target).sum())


def test_names_and_objects_give_the_same_run(tmp_path: Path) -> None:
    named = covey.run("fedavg", rounds=2, out=tmp_path / "a", train={"lr": 0.2}, **QUIET)
    data = covey.federate(covey.load("digits"), partition="dir-class", clients=20, seed=0)
    method = fedavg(covey.Train(lr=0.2))
    model = covey.models.build("mlp", input_shape=(1, 8, 8), outputs=10, seed=0)
    given = covey.run(method, data, model, rounds=2, out=tmp_path / "b", **QUIET)
    assert torch.equal(named.state.models, given.state.models)


def test_a_table_with_a_client_column_knows_its_clients(tmp_path: Path) -> None:
    table = tmp_path / "patients.csv"
    rows = [f"{i},{i % 7},{'ill' if i % 7 > 3 else 'well'},{'ABC'[i % 3]}" for i in range(60)]
    table.write_text("\n".join(["age,pressure,state,hospital", *rows]))
    data = covey.read_table(table, label="state", client="hospital")
    run = covey.run("fedavg", data, rounds=1, out=tmp_path / "run", **QUIET)
    assert (run.summary.clients, read_run(tmp_path / "run").summary.clients) == (3, 3)
    assert read_tables(tmp_path / "run" / "config.toml")["partition"]["name"] == "natural"
    shared = covey.run(
        "fedavg", data, rounds=1, clients=4, partition={"name": "iid"}, out=tmp_path / "iid", **QUIET
    )
    assert shared.summary.clients == 4


def test_targets_without_classes_are_split_evenly(tmp_path: Path) -> None:
    x = torch.rand(60, 4)
    data = from_tensors(x, x.sum(1), name="sums")
    covey.run("fedavg", data, rounds=1, clients=5, objective="regression", out=tmp_path / "run", **QUIET)
    assert read_tables(tmp_path / "run" / "config.toml")["partition"]["name"] == "iid"


def test_a_folder_of_ones_own_data_tells_the_truth(tmp_path: Path) -> None:
    data = covey.federate(blobs(), partition="iid", clients=3, seed=0)
    run = covey.run(
        mine(),
        data,
        net(),
        rounds=1,
        out=tmp_path / "run",
        objective=Classification(),
        metrics=[mistakes],
        **QUIET,
    )
    tables = read_tables(tmp_path / "run" / "config.toml")
    for table, name in (
        ("data", "blobs"),
        ("partition", "blobs"),
        ("model", "Sequential"),
        ("method", "fedavg"),
    ):
        assert tables[table]["name"].startswith(f"given:{name}@")
    assert (tables["data"]["clients"], tables["train"]["lr"]) == (3, 0.2)
    assert (run.summary.dataset, run.summary.model, run.summary.method) == (
        "blobs",
        "Sequential",
        "fedavg",
    )
    assert "local-test/mistakes-worst10" in run.summary.last
    again = [sys.executable, "-m", "covey", "run", str(tmp_path / "run" / "config.toml")]
    here = {**os.environ, "PYTHONPATH": str(Path(covey.__file__).parents[1])}
    refused = subprocess.run(again, capture_output=True, text=True, cwd=tmp_path, check=False, env=here)
    assert refused.returncode == 2
    assert "was an object of a Python program" in refused.stderr


def test_called_again_it_goes_on_and_other_objects_are_refused(tmp_path: Path) -> None:
    data = covey.federate(blobs(), partition="iid", clients=3, seed=0)

    def stop(end: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(covey.Interrupted):
        covey.run(mine(), data, net(), rounds=3, out=tmp_path / "run", watchers=[stop], **QUIET)
    done = covey.run(mine(), data, net(), rounds=3, out=tmp_path / "run", **QUIET)
    straight = covey.run(mine(), data, net(), rounds=3, out=tmp_path / "straight", **QUIET)
    assert torch.equal(done.state.models, straight.state.models)
    other = covey.federate(blobs(2.0), partition="iid", clients=3, seed=0)
    with pytest.raises(UserError, match="other settings"):
        covey.run(mine(), other, net(), rounds=3, out=tmp_path / "run", **QUIET)


def test_called_again_with_more_rounds_it_makes_them(tmp_path: Path) -> None:
    """Of objects, too, which a command could not continue with; fewer rounds than are done are none."""
    data = covey.federate(blobs(), partition="iid", clients=3, seed=0)
    covey.run(mine(), data, net(), rounds=2, out=tmp_path / "run", **QUIET)
    more = covey.run(mine(), data, net(), rounds=4, out=tmp_path / "run", **QUIET)
    straight = covey.run(mine(), data, net(), rounds=4, out=tmp_path / "straight", **QUIET)
    assert torch.equal(more.state.models, straight.state.models)
    assert more.summary.rounds_done == 4
    with pytest.raises(UserError, match="2, but 4 rounds are done"):
        covey.run(mine(), data, net(), rounds=2, out=tmp_path / "run", **QUIET)
    with pytest.raises(UserError, match="other settings"):
        covey.run(mine(), data, net(), rounds=6, seed=1, out=tmp_path / "run", **QUIET)


def test_methods_are_compared_by_label_and_a_failing_one_is_said(tmp_path: Path) -> None:
    def nobody(now: object) -> list[int]:
        raise ValueError("nobody works")

    broken = fedavg(covey.Train())
    broken = type(broken)(**{**vars(broken), "name": "broken", "select": nobody})
    found = covey.compare(
        {"ours": mine(), "few": {"name": "fedavg", "per_round": 1}, "broken": broken, "ifca": "ifca"},
        covey.federate(blobs(), partition="iid", clients=4, seed=0),
        "mlp",
        rounds=2,
        out=tmp_path / "all",
        progress=False,
        engine=SERIAL,
    )
    assert list(found) == ["ours", "few", "ifca"]
    assert "nobody works" in found.failed["broken"]
    shown = str(found)
    for word in ("ours", "few", "ifca", "broken failed", "worst"):
        assert word in shown
    assert (tmp_path / "all" / "report.html").exists()
    assert read_run(tmp_path / "all" / "few").label == "few"
    page = found._repr_html_()
    assert page.count("<tr>") == 4
    assert "<svg" in page
    assert found["few"].state.round == 2


def test_with_seeds_it_is_a_study_with_intervals_and_tests_that_goes_on(tmp_path: Path) -> None:
    data = covey.federate(blobs(), partition="iid", clients=3, seed=0)
    alone = {"name": "local"}
    options = {
        "rounds": 2,
        "seed": 3,
        "seeds": 2,
        "out": tmp_path / "study",
        "progress": False,
        "engine": SERIAL,
    }
    study = covey.compare({"ours": mine(), "alone": alone}, data, net(), **options)
    assert (list(study), study.failed) == (["ours", "alone"], {})
    one = covey.run(mine(), data, net(), rounds=2, seed=4, out=tmp_path / "one", **QUIET)
    ours, others = study.values("ours"), study.values("alone")
    assert (list(ours), ours[4]) == ([3, 4], one.summary.last["local-test/accuracy-mean"])
    test = study.tests()["alone"]
    assert test.difference == pytest.approx(sum(others[s] - ours[s] for s in (3, 4)) / 2)
    shown = str(study)
    assert test.p is None  # nothing is tested with two seeds
    for word in ("mean and 95 % interval over 2 seeds", "against", "ours", "alone", "2 seeds: not tested"):
        assert word in shown
    page = study._repr_html_()
    assert page.count("<tr>") == 3
    assert "<svg" in page
    assert read_run(study.runs["ours"][4].folder).summary.seed == 4
    frame = study.frame()
    assert {"method", "seed", "value"} <= set(getattr(frame, "column_names", None) or frame.columns)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "study").rglob("metrics.parquet")}
    again = covey.compare({"ours": mine(), "alone": alone}, data, net(), **options)
    assert again.values("ours") == ours
    assert len(written) == 4
    assert all(path.stat().st_mtime_ns == at for path, at in written.items())


def test_a_study_says_what_failed_and_what_is_no_number_of_seeds(tmp_path: Path) -> None:
    def nobody(now: object) -> list[int]:
        raise ValueError("nobody works")

    broken = type(mine())(**{**vars(mine()), "name": "broken", "select": nobody})
    data = covey.federate(blobs(), partition="iid", clients=3, seed=0)
    quiet = {"progress": False, "engine": SERIAL}
    study = covey.compare([broken], data, net(), rounds=1, seeds=1, out=tmp_path / "study", **quiet)
    assert "nobody works" in str(study)
    for name in ("seeds", "processes"):
        with pytest.raises(UserError, match=f"{name} is 0; allowed: a whole number from 1 on"):
            covey.compare(["fedavg"], rounds=1, out=tmp_path / "other", **{"seeds": 1, name: 0})
    assert not (tmp_path / "other").exists()


def test_the_frame_holds_every_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = covey.run(rounds=2, out=tmp_path / "run", **QUIET)
    monkeypatch.setattr(results, "framed", lambda table: table)
    table = run.frame()
    assert isinstance(table, pa.Table)
    assert table.column_names == [
        "method",
        "round",
        "seconds",
        "bytes",
        "client",
        "group",
        "split",
        "metric",
        "value",
    ]
    rows = [row for row in table.to_pylist() if (row["split"], row["metric"]) == ("global-test", "accuracy")]
    assert rows[-1]["value"] == run.summary.last["global-test/accuracy"]


def test_a_frame_is_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": [1]})
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    assert results.framed(table) is table
    monkeypatch.undo()
    pandas = pytest.importorskip("pandas")
    assert isinstance(results.framed(table), pandas.DataFrame)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"method": 3}, "method is a int; allowed: a name"),
        ({"data": [1, 2]}, "client '0' is a int; allowed: a .x, y. pair, a torch Dataset"),
        ({"model": "mlpp"}, "did you mean mlp"),
        ({"model": len}, "model is a builtin_function_or_method"),
        ({"lr": 0.1}, "did you mean train.lr"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, words: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        covey.run(rounds=1, out=tmp_path / "run", progress=False, **words)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_every_public_name_is_there() -> None:
    for name in covey.__all__:
        assert getattr(covey, name) is not None
    assert callable(covey.run)
    importlib.import_module("covey.runs.run")  # once the name of a module hid the function
    assert callable(covey.run)


def test_a_name_stands_for_a_table_with_that_name(tmp_path: Path) -> None:
    """In Python, in a TOML file and on the command line."""
    bare = resolve({"partition": "iid", "model": "softmax", "method": "cfic", "data": "digits"})
    whole = {"partition": "iid", "model": "softmax", "method": "cfic", "data": "digits"}
    assert bare.toml() == resolve({table: {"name": name} for table, name in whole.items()}).toml()
    run = covey.run(partition="iid", rounds=1, out=tmp_path / "run", **QUIET)
    assert run.config["partition"]["name"] == "iid"
    (tmp_path / "short.toml").write_text('rounds = 1\nmethod = "cfic"\npartition = "iid"\n')
    config = resolve(gathered_tables(tmp_path / "short.toml", RunOptions(set_=["method.alpha=0.5"])))
    assert (config["method"]["alpha"], config["partition"]["name"]) == (0.5, "iid")


def test_a_table_may_be_the_object_that_it_describes(tmp_path: Path) -> None:
    train = covey.Train(lr=0.2, epochs=1)
    given = covey.run(rounds=1, train=train, out=tmp_path / "a", **QUIET)
    named = covey.run(rounds=1, train={"lr": 0.2, "epochs": 1}, out=tmp_path / "b", **QUIET)
    assert given.config.toml() == named.config.toml()


def test_a_configuration_is_a_file_tables_or_complete_and_arguments_count_more(tmp_path: Path) -> None:
    tables = {"rounds": 1, "method": {"name": "cfic", "per_round": 3, "alpha": 0.5}, "engine": SERIAL}
    file = tmp_path / "mine.toml"
    file.write_text(
        'rounds = 1\nengine.mode = "serial"\n[method]\nname = "cfic"\nper_round = 3\nalpha = 0.5\n'
    )
    quiet = {"progress": False, "report": False}
    runs = [
        covey.run(config=config, out=tmp_path / str(number), **quiet)
        for number, config in enumerate((file, tables, resolve(tables)))
    ]
    assert len({run.config["method"]["alpha"] for run in runs}) == 1
    other = covey.run("fedavg", config=file, seed=3, out=tmp_path / "other", **quiet)
    assert (other.config["method"]["name"], other.config["method"]["per_round"]) == ("fedavg", 3)
    assert other.config.top.seed == 3
    with pytest.raises(UserError, match="config is a int"):
        covey.run(config=3, out=tmp_path / "wrong", **quiet)  # type: ignore[arg-type]


def test_a_folder_is_opened_and_resumed(tmp_path: Path) -> None:
    covey.run(rounds=1, out=tmp_path / "run", **QUIET)
    opened = covey.Run(tmp_path / "run")
    assert (opened.label, opened.state.round, opened.summary.rounds_done) == ("fedavg", 1, 1)
    longer = covey.resume(tmp_path / "run", rounds=2, progress=False, report=False)
    straight = covey.run(rounds=2, out=tmp_path / "straight", **QUIET)
    assert torch.equal(longer.state.models, straight.state.models)
    with pytest.raises(UserError, match="is not a run folder"):
        covey.resume(tmp_path, progress=False)
    with pytest.raises(UserError, match="has no summary"):
        covey.Run(tmp_path).summary  # noqa: B018
