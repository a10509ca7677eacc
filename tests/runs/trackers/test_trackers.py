"""The built-in trackers, for real: what TensorBoard, MLflow and W&B read back is what the run folder holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from covey.folder.flat import flat
from covey.folder.read import read_run
from covey.runs.config import resolve
from covey.runs.run import resume, run_config
from covey.runs.trackers.replay import run_folders, told_after

NAME = "global-test/accuracy"


def run_with(tracker: list[object], folder: Path, rounds: int = 3):
    tables = {
        "rounds": rounds,
        "data": {"name": "digits", "clients": 4},
        "train": {"epochs": 1},
        "tracker": tracker,
    }
    return run_config(resolve(tables), folder, report=False)


def curve(folder: Path) -> dict[int, float]:
    rows = read_run(folder).rows.overall(NAME)
    return dict(zip(rows.round.tolist(), rows.value.tolist(), strict=True))


def in_tensorboard(folder: Path) -> dict[int, float]:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = events.EventAccumulator(str(folder))
    found.Reload()
    return {event.step: event.value for event in found.Scalars(NAME)}


def in_mlflow(uri: str, folder: Path) -> dict[int, float]:
    from mlflow import MlflowClient

    kept = json.loads((folder / "mlflow.json").read_text())
    history = MlflowClient(tracking_uri=uri).get_metric_history(kept["run"], NAME)
    assert len(history) == len({metric.step for metric in history})
    return {metric.step: metric.value for metric in history}


def test_tensorboard_shows_the_run_live_after_a_resume_and_after_the_fact(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder = tmp_path / "run"
    run_with(["tensorboard"], folder)
    assert in_tensorboard(folder / "tensorboard") == pytest.approx(curve(folder))
    resume(folder, rounds=5, report=False)
    assert in_tensorboard(folder / "tensorboard") == pytest.approx(curve(folder))
    assert len(curve(folder)) == 5
    for _ in range(2):  # told twice, it is there once
        told_after(folder, "tensorboard", {"folder": str(tmp_path / "boards")})
    assert in_tensorboard(tmp_path / "boards" / "run") == pytest.approx(curve(folder))


@pytest.mark.parametrize("store", ["sqlite", "file"])
def test_mlflow_keeps_settings_and_every_number(tmp_path: Path, store: str) -> None:
    mlflow = pytest.importorskip("mlflow")
    folder = tmp_path / "run"
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}" if store == "sqlite" else (tmp_path / "mlruns").as_uri()
    run_with([{"name": "mlflow", "uri": uri}], folder)
    assert in_mlflow(uri, folder) == pytest.approx(curve(folder))
    resume(folder, rounds=4, report=False)
    assert sorted(in_mlflow(uri, folder)) == [1, 2, 3, 4]
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("covey").experiment_id])
    assert run.info.run_name == "fedavg seed 0"
    assert run.data.params["data.clients"] == "4"
    assert run.info.status == "FINISHED"
    told_after(folder, "mlflow", {"uri": uri})
    assert in_mlflow(uri, folder) == pytest.approx(curve(folder))
    assert len(client.search_runs([run.info.experiment_id])) == 1  # the earlier telling is replaced


def test_wandb_keeps_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "run"
    run_with(["wandb"], folder)
    wandb.teardown()  # the file is written by a process of W&B's own, which a busy machine lets finish later
    (kept,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    assert NAME.encode() in kept.read_bytes()
    assert (folder / "wandb-id.txt").read_text()


def test_settings_are_one_flat_table() -> None:
    assert flat({"a": 1, "b": {"c": None, "d": {"e": [1, 2]}}}) == {"a": 1, "b.c": "none", "b.d.e": "[1, 2]"}


def test_run_folders_are_found_beneath_a_study(tmp_path: Path) -> None:
    for name in ("a/seed-0", "a/seed-1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.toml").write_text("")
        (tmp_path / name / "metrics.jsonl").write_text("")
    assert [path.name for path in run_folders(tmp_path)] == ["seed-0", "seed-1"]
