"""Tuning: equal trials on validation data, a file that runs, and a database that Optuna opens."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from covey.errors import UserError
from covey.files import folder_lock
from covey.runs.config import resolve
from covey.runs.study.pool import JobOutcome
from covey.runs.study.tuning import Trials, Tuning, begin, conclude, read_tuning, tell, tune
from covey.runs.study.worker import do
from covey.settings.toml import read_tables
from covey.terminal import live_many

optuna = pytest.importorskip("optuna")

TABLES = {"rounds": 4, "data": {"name": "digits", "clients": 4}, "train": {"epochs": 1, "lr": 0.001}}


def tuned(folder: Path, **changes: object):
    settings = {
        "methods": ("fedavg", "local"),
        "tables": TABLES,
        "trials": 3,
        "over": ("train.lr=0.0005..0.5",),
    }
    tuning = Tuning(**{**settings, "test_seeds": 0, "pruner": "none", **changes})  # type: ignore[arg-type]
    return tune(tuning, folder, show=live_many, say=lambda _: None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("tune") / "out"
    return folder, tuned(folder)


def test_every_method_has_the_same_number_of_trials_and_the_defaults_are_the_first(made) -> None:
    folder, found = made
    assert [one.method for one in found] == ["fedavg", "local"]
    assert [one.complete + one.pruned for one in found] == [3, 3]
    study = optuna.load_study(study_name="fedavg", storage=f"sqlite:///{folder / 'optuna.db'}")
    assert study.trials[0].params == {"train.lr": 0.001}
    assert all(one.value >= one.default_value for one in found)
    assert found[0].rounds == 12


def test_trials_are_measured_on_validation_data_and_the_best_file_is_not(made) -> None:
    folder, found = made
    for config in folder.glob("*/trial-*/config.toml"):
        assert read_tables(config)["data"]["validation"] == 0.2
    best = read_tables(found[0].file)
    assert "validation" not in best["data"]
    assert resolve(best)["train"]["lr"] == pytest.approx(found[0].params["train.lr"])


def test_the_folder_says_what_was_tuned_and_a_finished_tuning_makes_no_more_trials(made) -> None:
    folder, found = made
    assert read_tuning(folder).methods == ("fedavg", "local")
    again = tuned(folder)
    assert [one.complete for one in again] == [one.complete for one in found]
    with pytest.raises(UserError, match="holds another tuning"):
        tuned(folder, trials=9)


def test_a_trial_that_was_under_way_is_made_once_more_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    tuned(folder, methods=("fedavg",), trials=1)
    with sqlite3.connect(folder / "optuna.db") as data:  # as kill -9 leaves it
        data.execute("update trials set state = 'RUNNING'")
        data.execute("delete from trial_values")
    (again,) = tuned(folder, methods=("fedavg",), trials=1)
    assert again.complete == 1
    assert [path.name for path in (folder / "fedavg").iterdir()] == ["trial-000"]


def test_a_refused_combination_costs_no_trial(tmp_path: Path) -> None:
    """CFIC takes `adaptive` with one `scale` only; one trial more is refused by its run."""
    over = ("method.adaptive=false,true", "method.scale=relative,absolute")
    tuning = Tuning(methods=("cfic",), tables=TABLES, over=over, sampler="random", trials=6)
    race = begin(tuning, "cfic", tmp_path, "local-test/accuracy-mean")
    queue = Trials(races=[race], each=tuning.trials, folder=tmp_path)
    for number, job in enumerate(queue):
        refused = JobOutcome(failed="too many clients", refused=True)
        good = JobOutcome(last={"local-test/accuracy-mean": 0.5})
        tell(race, job, refused if number == 5 else good, "local-test/accuracy-mean")
    one = conclude(race, tuning, tmp_path)
    why = [trial.user_attrs["refused"] for trial in race.study.trials if "refused" in trial.user_attrs]
    assert (one.complete, one.failed, one.refused) == (6, 0, len(why))
    assert why.count("too many clients") == 1
    assert len(why) > 1
    assert all(words.startswith("adaptive sets beta itself") for words in why if words != "too many clients")


def test_a_run_says_whether_it_was_refused_before_its_first_round(tmp_path: Path) -> None:
    told: list[dict[str, object]] = []
    do(
        {"tables": {**TABLES, "data": {"name": "digits", "clients": 10**6}}, "folder": str(tmp_path)},
        told.append,
    )
    assert told[-1]["refused"] is True
    assert "clients" in str(told[-1]["failed"])


def test_where_every_combination_is_refused_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.runs.study.tuning.MOST_REFUSED", 3)
    over = ("method.adaptive=true", "method.decay=0.5,0.9")
    with pytest.raises(UserError, match="3 combinations in a row were refused for cfic; the last: adaptive"):
        tuned(tmp_path / "out", methods=("cfic",), over=over)


def test_two_tunings_at_once_never_share_a_folder(made) -> None:
    with folder_lock(made[0]), pytest.raises(UserError, match="is being written by another run"):
        tuned(made[0])


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + bytes(4000)])
def test_a_damaged_database_of_trials_is_one_sentence(made, tmp_path: Path, content: bytes) -> None:
    shutil.copytree(made[0], tmp_path / "out")
    (tmp_path / "out" / "optuna.db").write_bytes(content)
    with pytest.raises(
        UserError, match=r"optuna\.db cannot be used: .*; without it the trials are made anew$"
    ):
        tuned(tmp_path / "out")


def test_mistakes_are_said_before_the_first_trial(tmp_path: Path) -> None:
    for changes, sentence in (
        ({"sampler": "best"}, "--sampler is 'best'"),
        ({"pruner": "all"}, "--pruner is 'all'"),
        ({"validation": 1.5}, r"--validation is 1\.5"),
        ({"over": ("method.mu=0,1",)}, "no setting that fedavg has"),
        ({"over": ("train.lr=nan..inf",)}, "both finite and the smaller first"),
        ({"over": ("train.lr=0.1..inf",)}, "both finite and the smaller first"),
        ({"over": ("train.batch=1..1" + "0" * 400,)}, "both finite and the smaller first"),
        ({"over": ("seed=0..9",)}, "--over seed is no setting to choose"),
    ):
        with pytest.raises(UserError, match=sentence):
            tuned(tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()
