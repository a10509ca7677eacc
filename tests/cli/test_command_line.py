"""The command line as a user meets it, in processes of its own."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from covey.cli import app, lists, main
from covey.errors import UserError
from covey.settings.catalogue import METHODS
from tests.forked import Forked, covey, python, signalled_after

QUICK = ["--set", "data.clients=6", "--set", "engine.mode=serial"]


def covey_here(
    words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """The command in this process, in a folder of its own: its exit code and what it said on standard error."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["covey", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0), capsys.readouterr().err


def bank(folder: Path) -> torch.Tensor:
    newest = max((folder / "checkpoint").glob("*.safetensors"))  # the last good ones are kept
    return safetensors.torch.load_file(newest)["/state/models"]


def test_a_run_leaves_a_complete_folder(tmp_path: Path) -> None:
    """As a user starts it, with everything imported anew; the other tests fork."""
    words = ["run", "--rounds", "2", "--out", str(tmp_path / "r"), "--set", "target=0.01", *QUICK]
    done = subprocess.run([sys.executable, "-m", "covey", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert names == {
        "about.json",
        "config.toml",
        "metrics.parquet",
        "served.safetensors",
        "summary.json",
        "checkpoint",
        "checkpoint.json",
        "report.html",
    }
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["rounds_done"] == 2
    assert summary["finished"]
    assert 0 <= summary["last"]["global-test/accuracy"] <= 1
    assert summary["targets"][0]["round"] == 1
    assert "fedavg" in done.stdout


def test_the_resolved_file_gives_the_same_run(tmp_path: Path) -> None:
    covey("run", "--rounds", "2", "--out", str(tmp_path / "a"), "--seed", "4", *QUICK)
    again = covey("run", str(tmp_path / "a" / "config.toml"), "--out", str(tmp_path / "b"))
    assert again.returncode == 0, again.stderr
    assert torch.equal(bank(tmp_path / "a"), bank(tmp_path / "b"))
    assert (tmp_path / "a" / "config.toml").read_text() == (tmp_path / "b" / "config.toml").read_text()


def stopped(folder: Path, number: int, how: signal.Signals) -> Forked:
    """A run of five rounds that gets a signal when the checkpoint of a round is there."""
    words = ["run", "--rounds", "5", "--out", str(folder), "--set", "checkpoint_seconds=0", *QUICK]
    return signalled_after(folder, number, how, words)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    folder = tmp_path_factory.mktemp("straight") / "r"
    done = covey("run", "--rounds", "5", "--out", str(folder), *QUICK)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path, straight: Path, how: signal.Signals) -> None:
    ended = stopped(tmp_path / "cut", 3, how).wait()
    assert ended.returncode == (130 if how == signal.SIGINT else -how)
    if how == signal.SIGINT:
        assert "covey run --resume" in ended.stderr
    summary = tmp_path / "cut" / "summary.json"
    assert not summary.exists() or not json.loads(summary.read_text())["finished"]
    told = covey("report", str(tmp_path / "cut"))
    assert told.returncode == 0  # an unfinished folder has a report too
    assert "fedavg is unfinished: " in told.stdout
    resumed = covey("run", "--resume", str(tmp_path / "cut"))
    assert resumed.returncode == 0, resumed.stderr
    assert torch.equal(bank(tmp_path / "cut"), bank(straight))
    a, b = (json.loads((folder / "summary.json").read_text()) for folder in (tmp_path / "cut", straight))
    assert a["last"] == b["last"]
    assert a["cost"] == b["cost"]


def test_compare_runs_all_on_the_same_fleet(tmp_path: Path) -> None:
    done = covey("compare", "fedavg", "local", "--rounds", "2", "--out", str(tmp_path / "c"), *QUICK)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "c" / "report.html").exists()
    rows = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert "fedavg" in rows
    assert "local" in rows


def test_what_keeps_validation_data_compares_with_training_in_one_place(tmp_path: Path) -> None:
    done = covey("compare", "cafa", "centralized", "--rounds", "2", "--out", str(tmp_path / "c"), *QUICK)
    assert done.returncode == 0, done.stderr
    assert {"cafa", "centralized"} <= {line.split()[0] for line in done.stdout.splitlines() if line.strip()}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "--set", "trian.lr=1"], "trian is not known; did you mean train?"),
        (["run", "--set", "train.lrr=1"], "train.lrr is not known; did you mean lr?"),
        (["run", "--set", "train.lr=fast"], "train.lr is 'fast'; allowed: a number"),
        (["run", "--set", "train.lr=-1"], "train.lr is -1; allowed: a number above 0"),
        (
            ["run", "--set", "method.per_round=0"],
            "method.per_round is 0; allowed: a whole number, at least 1",
        ),
        (["run", "--set", "data.clients=0"], "data.clients is 0; allowed: a whole number, at least 1"),
        (["run", "--rounds", "0"], "rounds is 0; allowed: a whole number, at least 1"),
        (["run", "--method", "fedagv"], "did you mean fedavg?"),
        (["run", "--dataset", "mnits"], "did you mean mnist?"),
        (["run", "--set", "partition.name=m-labels", "--set", "partition.m=11", "--out", "x"], "11"),
        (["run", "--set", "methods=3"], "methods is 3; it must hold tables"),
        (["run", "--set", "methods.fedavg.train=3"], "it must be a table"),
        (["run", "--set", "methods.fedprox.mmu=1"], "methods.fedprox.mmu is not known; did you mean mu?"),
        (["run", "--set", "model.buffers=both"], "model.buffers is 'both'; allowed: average, local"),
        (["run", "--set", "target=nan"], "target is nan; allowed: a number or none"),
        (["run", "--set", "engine.device=tpu"], "engine.device is 'tpu'"),
        (["run", "--set", "objective=regression"], "it needs targets: labels that are floats"),
        (["run", "--out", "/proc/nobody/x"], "cannot be made"),
        (["run", "nothing.toml"], "nothing.toml does not exist"),
        (["run", "--resume", "nowhere"], "is not a run folder"),
        (["compare", "--rounds", "1", "nothing"], "nothing"),
        (["report", "nowhere"], "nowhere"),
        (["methods", "fedagv"], "did you mean fedavg?"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, said = covey_here(words, tmp_path, monkeypatch, capsys)
    assert code == 2
    sentences = [line for line in said.splitlines() if line.startswith("covey: ")]
    assert len(sentences) == 1
    assert sentence in sentences[0]
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir()), "nothing is written for a mistake"


def test_an_out_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    done = covey("run", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert os.listdir(tmp_path) == ["mine.txt"]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["methods"], "fedprox"),
        (["methods", "fedprox"], "mu"),
        (["partitions"], "dir-class"),
        (["shifts"], "clustered"),
        (["shifts", "clustered"], "of_classes"),
        (["datasets"], "mnist"),
        (["models"], "lenet5"),
    ],
)
def test_lists_show_every_name_and_its_settings(words: list[str], shown: str) -> None:
    assert shown in CliRunner().invoke(app, words).stdout


def test_a_description_is_shown_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    lists.methods("haccs")
    shown = " ".join(capsys.readouterr().out.split())
    assert "settings in the table [method]" in shown, "no part is taken for a style of the terminal"
    assert "budget none a number above 0 or none" in shown
    assert "squared false true or false" in shown


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_does_in_a_sentence(name: str) -> None:
    sentence = lists.first_sentence(METHODS[name])
    assert 20 < len(sentence) < 200
    assert sentence.count("(") == sentence.count(")")


def test_help_waits_for_neither_torch_nor_numpy() -> None:
    code = "import sys, covey.cli; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_readmes_program_runs(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    program = text.split("```python\n")[1].split("```")[0]
    done = python(program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "local test" in done.stdout


def test_a_warning_is_a_line_without_a_place_in_somebody_elses_code(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from covey.methods.baselines import fedavg\n\ndef mine(train):\n    'Ten of them.'\n    return fedavg(train)\n"
    )
    words = [
        "run",
        "--method",
        f"{tmp_path}/own.py:mine",
        "--rounds",
        "1",
        "--out",
        str(tmp_path / "out"),
        *QUICK,
    ]
    lines = covey(*words).stderr.splitlines()
    assert "per_round is 10, but there are 6 clients: all of them work" in lines
    assert not [line for line in lines if "Warning" in line]


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    first = stopped(tmp_path / "r", 1, signal.SIGSTOP)
    first.wait_until_stopped()
    second = covey("run", "--resume", str(tmp_path / "r"))
    first.kill()
    assert second.returncode == 2
    assert "is being written by another run" in second.stderr


def test_a_run_is_not_resumed_under_other_settings_or_from_half_a_journal(tmp_path: Path) -> None:
    stopped(tmp_path / "r", 1, signal.SIGKILL).wait()
    config = tmp_path / "r" / "config.toml"
    before = config.read_text()
    config.write_text(before.replace("lr = 0.05", "lr = 0.2"))
    changed = covey("run", "--resume", str(tmp_path / "r"))
    assert changed.returncode == 2
    assert "config.toml was changed" in changed.stderr
    config.write_text(before)
    (tmp_path / "r" / "metrics.jsonl").write_text("")
    short = covey("run", "--resume", str(tmp_path / "r"))
    assert short.returncode == 2
    assert "shorter than the checkpoint says" in short.stderr


def test_a_report_that_was_never_written_comes_with_the_next_resume(tmp_path: Path) -> None:
    covey("run", "--rounds", "1", "--out", str(tmp_path / "r"), *QUICK)
    (tmp_path / "r" / "report.html").unlink()
    assert covey("run", "--resume", str(tmp_path / "r")).returncode == 0
    assert (tmp_path / "r" / "report.html").exists()


def test_what_the_system_refuses_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import covey.cli as cli

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "here/summary.json")

    monkeypatch.setattr(cli, "app", full)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "covey: No space left on device (here/summary.json)\n"


def test_options_that_would_do_nothing_are_one_sentence(tmp_path: Path) -> None:
    from covey.cli.advise import advise
    from covey.cli.run import run

    with pytest.raises(UserError, match="--resume uses the folder's own settings"):
        run(resume=tmp_path, address="somewhere:1")
    with pytest.raises(UserError, match="--out goes with --check"):
        advise(out=tmp_path)
