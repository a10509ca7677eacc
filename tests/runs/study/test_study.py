"""A study: several configurations with several seeds side by side, that continues after whatever ended it."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

import covey
from covey.errors import UserError
from covey.files import folder_lock, free_memory
from covey.folder.read import read_run
from covey.runs.config import resolve
from covey.runs.run import run_config
from covey.runs.study.execute import StudyInterrupted, execute
from covey.runs.study.plan import StudyPlan, keep_plan, read_plan
from covey.runs.study.room import side_by_side
from covey.terminal import live_many
from tests.forked import start

SMALL = {"rounds": 3, "data": {"name": "digits", "clients": 4}, "train": {"epochs": 1}}


def plan_of(seeds: int = 2, **methods: dict[str, object]) -> StudyPlan:
    tables = methods or {"fedavg": {}, "local": {}}
    configs = {
        label: resolve({**SMALL, **own, "method": {"name": label.partition("+")[0]}})
        for label, own in tables.items()
    }
    return StudyPlan(kind="compare", configs=configs, seeds=seeds)


def made(plan: StudyPlan, folder: Path, **options: object):
    said: list[str] = []
    return execute(plan, folder, show=live_many, say=said.append, **options), said


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("study") / "out"
    done, _ = made(plan_of(), folder)
    return done


@pytest.mark.parametrize(
    ("seed", "seeds", "sentence"),
    [
        (0, 10**9, "seeds is 1,000,000,000, which makes 1,000,000,000 runs; allowed: at most 100,000"),
        (2**63 - 2, 3, "the last seed would be 9223372036854775808; allowed: whole numbers from 0 to 9,223,"),
    ],
)
def test_a_study_that_nobody_could_run_is_a_sentence(seed: int, seeds: int, sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        plan_of(seeds, fedavg={"seed": seed})


def test_every_method_is_run_with_every_seed_to_the_same_bits_as_alone(study, tmp_path: Path) -> None:
    assert {label: sorted(runs) for label, runs in study.runs.items()} == {
        "fedavg": [0, 1],
        "local": [0, 1],
    }
    alone = run_config(
        resolve({**SMALL, "seed": 1, "method": {"name": "fedavg"}}), tmp_path / "run", report=False
    )
    assert alone.summary.last == read_run(study.runs["fedavg"][1].folder).summary.last


def test_the_page_has_means_single_runs_and_paired_tests(study) -> None:
    page = (study.folder / "report.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    assert data["seeds"] == 2
    assert [run["label"] for run in data["runs"]] == ["fedavg", "local"]
    curve = data["runs"][0]["curves"]["local-test/accuracy-mean"]
    views = [read_run(study.runs["fedavg"][seed].folder) for seed in (0, 1)]
    by_hand = [view.rows.overall("local-test/accuracy-mean").value[-1] for view in views]
    assert curve["all"][-1] == pytest.approx(sum(by_hand) / 2, abs=1e-4)
    # two seeds: the single runs in place of a band
    assert [run[-1] for run in curve["seeds"]["runs"]] == pytest.approx(by_hand, abs=1e-4)
    assert "low" not in curve["seeds"]
    assert "mean and 95 % interval over 2 seeds" in page
    assert "against fedavg" in page


def test_a_finished_study_is_not_made_again(study) -> None:
    before = {path: path.stat().st_mtime_ns for path in study.folder.rglob("metrics.parquet")}
    again, said = made(read_plan(study.folder), study.folder)
    assert [view.path for view in again.views] == [view.path for view in study.views]
    assert said == ["0 of 4 runs are left"]
    assert before == {path: path.stat().st_mtime_ns for path in study.folder.rglob("metrics.parquet")}


def test_another_study_does_not_take_its_folder(study, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds a study with other settings"):
        keep_plan(plan_of(seeds=3), study.folder)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        keep_plan(plan_of(), tmp_path)
    with pytest.raises(UserError, match=r"has no study\.json"):
        read_plan(tmp_path)


def test_two_studies_at_once_never_share_a_folder(tmp_path: Path) -> None:
    """Otherwise each would take the other's runs for failed ones, and the last to end would write the page."""
    keep_plan(plan_of(), tmp_path)
    with folder_lock(tmp_path), pytest.raises(UserError, match="is being written by another run"):
        made(plan_of(), tmp_path)
    with folder_lock(tmp_path), pytest.raises(UserError, match="is being written by another run"):
        covey.compare(["fedavg", "local"], "digits", rounds=1, clients=4, out=tmp_path, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]


def test_one_run_that_fails_leaves_the_others(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(
        "from covey.methods.baselines import fedavg\n"
        "def spoilt(train):\n    return fedavg(train)\n"
        "def after(now):\n    raise ValueError('boom')\n"
    )
    configs = dict(plan_of(fedavg={}).configs)
    configs["broken"] = resolve(
        {**SMALL, "method": {"name": "compose", "mix": "average", "after": [f"{broken}:after"]}}
    )
    done, _ = made(StudyPlan(kind="compare", configs=configs, seeds=1), tmp_path / "out", processes=1)
    assert list(done.runs) == ["fedavg"]
    assert "boom" in done.failures()


def test_how_many_go_at_once_fits_memory_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = list(plan_of().configs.values())
    monkeypatch.setattr("covey.runs.study.room.usable_cores", lambda: 8)
    monkeypatch.setattr("covey.runs.study.room.bytes_of", lambda _: 550_000_000)
    monkeypatch.setattr("covey.runs.study.room.free_memory", lambda: 4_000_000_000)
    assert side_by_side(configs, 20) == 3  # 0.85 x 4 GB hold three of 1 GB each
    assert side_by_side(configs, 2) == 2
    assert side_by_side(configs, 20, 1) == 1
    monkeypatch.setattr("covey.runs.study.room.free_memory", lambda: 10_000_000)
    assert side_by_side(configs, 20) == 1
    ray = resolve({**SMALL, "engine": {"mode": "ray"}})
    assert side_by_side([ray], 20) == 1


def test_free_memory_is_known_here() -> None:
    assert free_memory() is None or free_memory() > 0


ROUNDS = 4
# Everybody, once the gate is open: before, the second round does not begin, however busy the machine.
GATED = """
import time
from dataclasses import replace
from pathlib import Path

from covey.core.round import Round
from covey.methods.baselines import fedavg


def everybody(now: Round):
    while now.number >= 2 and not Path(__file__).with_name("open").exists():
        time.sleep(0.05)
    return now.here


def gated(train):
    'FedAvg behind a gate.'
    return replace(fedavg(train), name="gated", select=everybody)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_it_goes_on_after_kill_and_after_ctrl_c(tmp_path: Path, how: signal.Signals) -> None:
    folder, own = tmp_path / "out", tmp_path / "gate.py"
    own.write_text(GATED)
    words = ["compare", f"{own}:gated", "--dataset", "digits", "--rounds", str(ROUNDS), "--seeds", "2"]
    words += ["--set", "checkpoint_seconds=0", "--set", "data.clients=4", "--processes", "1"]
    study = start([*words, "--out", str(folder)])
    while not rounds_kept(folder / "gated" / "seed-0"):
        assert os.waitpid(study.pid, os.WNOHANG) == (0, 0), "it has ended"
        time.sleep(0.05)
    os.kill(study.pid, how)
    ended = study.wait()
    assert ended.returncode == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    if how == signal.SIGINT:
        assert "resume with: covey compare --resume" in " ".join(ended.stderr.split())
    lock_is_free(folder / "gated" / "seed-0")
    assert read_run(folder / "gated" / "seed-0").summary.rounds_done == 1
    own.with_name("open").touch()
    done, _ = made(read_plan(folder), folder)
    assert sorted(done.runs["gated"]) == [0, 1]
    rows = read_run(done.runs["gated"][0].folder).rows.overall("global-test/accuracy")
    assert rows.round.tolist() == list(range(1, ROUNDS + 1))


def rounds_kept(folder: Path) -> int:
    """The last round of a run that is in a checkpoint, which is written after the journal; 0 before there is one."""
    checkpoint = folder / "checkpoint.json"
    return json.loads(checkpoint.read_text())["kept"][0]["round"] if checkpoint.exists() else 0


def lock_is_free(folder: Path) -> None:
    """The process that made the run ends with its study, at the latest a moment later."""
    import fcntl

    for _ in range(6000):
        place = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            time.sleep(0.05)
        finally:
            os.close(place)
    raise AssertionError("the run continues without its study")


def test_an_interrupted_study_says_how_to_go_on() -> None:
    assert "covey compare --resume somewhere" in str(StudyInterrupted(plan_of().kind, Path("somewhere")))
