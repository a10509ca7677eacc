"""From a configuration to a folder, whatever happens on the way: nothing lost, nothing false."""

import errno
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

import covey.runs.run
from covey.core.round import RoundEnd
from covey.errors import RunError, UserError
from covey.files import write_atomically
from covey.folder.journal import Journal
from covey.folder.read import read_run
from covey.folder.recorder import Recorder
from covey.runs.config import fleet_of, resolve
from covey.runs.results import Run
from covey.runs.run import resume, run_config, run_or_resume, write_page
from tests.forked import python
from tests.hostile.damaged_folders import TABLES, Killed, run_until


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_config(resolve(TABLES), tmp_path_factory.mktemp("runs") / "straight")


def same(a: Run, b: Run) -> None:
    assert torch.equal(a.state.models, b.state.models)
    assert replace(a.summary, wall_seconds=0) == replace(b.summary, wall_seconds=0)
    tables = [pq.read_table(done.folder / "metrics.parquet") for done in (a, b)]
    assert tables[0].equals(tables[1])


# ---------------------------------------------------------------------------------------------- the end


def test_the_page_of_a_run_that_went_on_is_written_anew(tmp_path: Path) -> None:
    folder = run_until(tmp_path / "run", Killed())
    write_page(folder)
    assert "is unfinished" in (folder / "report.html").read_text()
    resume(folder)
    assert "is unfinished" not in (folder / "report.html").read_text()


def test_a_page_that_is_still_true_is_left_alone(tmp_path: Path) -> None:
    folder = run_until(tmp_path / "run", None)
    (folder / "report.html").write_text("one page for several runs")
    resume(folder)
    assert (folder / "report.html").read_text() == "one page for several runs"


def test_killed_before_its_summary_a_run_has_the_same_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, straight: Run
) -> None:
    def killed(self: Recorder, state: Any, *, finished: bool) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "finish", killed)
        with pytest.raises(Killed):
            run_config(resolve(TABLES), tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()
    done = resume(tmp_path / "run")
    same(done, straight)
    assert done.summary.engine["trainer"]
    assert done.summary.clients == 4


def test_files_of_an_earlier_end_are_gone_while_a_run_goes_on(tmp_path: Path) -> None:
    folder = run_until(tmp_path / "run", KeyboardInterrupt())
    assert not json.loads((folder / "summary.json").read_text())["finished"]
    write_page(folder)

    def look(end: RoundEnd) -> None:
        assert {path.name for path in folder.iterdir()} == {
            "about.json",
            "config.toml",
            "metrics.jsonl",
            "checkpoint",
            "checkpoint.json",
        }
        assert read_run(folder).summary.rounds_done == end.state.round

    assert resume(folder, watchers=[look]).summary.finished


# ---------------------------------------------------------------------------------------------- who may write


def test_a_folder_that_was_filled_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both runs saw an empty folder; the one that comes second must not mix its files with the first one's."""

    def slow(*args: Any) -> Any:
        monkeypatch.setattr(covey.runs.run, "fleet_of", fleet_of)
        run_config(resolve({**TABLES, "seed": 5}), tmp_path / "run", report=False)
        return fleet_of(*args)

    monkeypatch.setattr(covey.runs.run, "fleet_of", slow)
    with pytest.raises(UserError, match="is not empty"):
        run_config(resolve(TABLES), tmp_path / "run", report=False)
    assert resume(tmp_path / "run", report=False).summary.seed == 5


def test_a_folder_says_what_ran_or_is_not_written(tmp_path: Path) -> None:
    """A simulated fleet of one's own is not what config.toml describes."""
    config = resolve(TABLES)
    with pytest.raises(UserError, match=r"config.toml would describe another"):
        run_config(config, tmp_path / "run", fleet=fleet_of(config))
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------- a damaged checkpoint


@pytest.mark.parametrize("file", ["checkpoint/000002.safetensors", "metrics.jsonl"])
def test_where_the_last_checkpoint_is_damaged_the_one_before_is_offered(
    tmp_path: Path, straight: Run, file: str
) -> None:
    folder = run_until(tmp_path / "run", Killed())
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[:-1] + b"?" if "jsonl" not in file else content[:-20])
    with pytest.raises(UserError) as said:
        resume(folder)
    offer = (
        "The checkpoint of round 1 is whole: resume from there, to the same result, with "
        f"--resume {folder} --from 1"
    )
    assert str(said.value).endswith(offer)
    with pytest.raises(
        UserError, match=r"--from is 7; allowed: the round of a checkpoint that is kept: 2, 1, 0"
    ):
        resume(folder, from_round=7)
    same(resume(folder, from_round=1), straight)


def test_real_sites_are_not_offered_to_go_back(tmp_path: Path) -> None:
    """covey serve has no --from: sites have a state of their own, which would stay ahead of the server's."""
    folder = run_until(tmp_path / "run", Killed())
    (folder / "checkpoint/000002.safetensors").write_bytes(b"?")
    with pytest.raises(
        UserError, match=r"round 1 is whole, but real sites have gone on.*begin a new run"
    ) as said:
        resume(folder, fleet=SimpleNamespace(simulated=False, close=lambda: None))  # type: ignore[arg-type]
    assert "--from" not in str(said.value)


def test_a_run_that_has_ended_does_not_go_back(tmp_path: Path) -> None:
    folder = run_config(resolve(TABLES), tmp_path / "run", report=False).folder
    with pytest.raises(UserError, match=r"--from is 3, but the run has ended.*begin a new run"):
        resume(folder, from_round=3)
    sorted((folder / "checkpoint").iterdir())[-1].write_bytes(b"?")
    with pytest.raises(UserError, match=r"is damaged.*An earlier checkpoint is of no use: the run has ended"):
        resume(folder, rounds=9)


def test_an_undamaged_run_may_go_back_too(tmp_path: Path, straight: Run) -> None:
    folder = run_until(tmp_path / "run", KeyboardInterrupt())
    same(resume(folder, from_round=0), straight)


# ---------------------------------------------------------------------------------------------- killed at the start


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_start_that_was_killed_is_no_dead_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, straight: Run, writes: int
) -> None:
    """Killed at the first, second ... file, half of it written: the same command, or --resume, works."""
    done = 0

    def killed(path: Path, content: bytes | str) -> None:
        nonlocal done
        if done == writes:
            path.with_name(path.name + ".tmp").write_text("half")
            raise Killed
        done += 1
        write_atomically(path, content)

    with monkeypatch.context() as patch:
        for module in ("folder.checkpoint", "folder.checksums", "folder.recorder"):
            patch.setattr(f"covey.{module}.write_atomically", killed)
        with pytest.raises(Killed):
            run_config(resolve(TABLES), tmp_path / "run")
    same(run_or_resume(resolve(TABLES), tmp_path / "run"), straight)


def test_somebody_elses_files_are_never_taken_for_what_is_left_of_a_start(tmp_path: Path) -> None:
    folder = run_until(tmp_path / "run", Killed())
    (folder / "config.toml").unlink()  # by mistake: the checkpoints are precious all the same
    with pytest.raises(UserError, match="is not empty"):
        run_config(resolve(TABLES), folder)


# ---------------------------------------------------------------------------------------------- a disk that refuses


def full(path: Path, *_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


@pytest.mark.parametrize(
    ("where", "refuses"),
    [
        ("covey.folder.checkpoint.write_atomically", full),
        ("covey.folder.checksums.write_atomically", full),
        ("covey.folder.journal.Journal.append", lambda self, rows: full(self.path)),
        ("covey.folder.journal.Journal.sync", lambda self: full(self.path)),
        ("covey.folder.recorder.write_atomically", full),
        ("covey.runs.run.write_page", full),
    ],
)
def test_a_full_disk_is_a_sentence_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    straight: Run,
    where: str,
    refuses: Callable[..., None],
) -> None:
    def fill(end: RoundEnd) -> None:
        if end.state.round == 2:
            monkeypatch.setattr(where, refuses)

    with pytest.raises(RunError, match=r"cannot be written: No space left on device .*resume with --resume"):
        run_config(resolve(TABLES), tmp_path / "run", watchers=[fill])
    monkeypatch.undo()
    assert not list((tmp_path / "run").glob("*.tmp"))
    same(resume(tmp_path / "run"), straight)
    assert (tmp_path / "run" / "report.html").exists()


def test_a_folder_that_vanished_is_a_sentence(tmp_path: Path) -> None:
    def remove(end: RoundEnd) -> None:
        shutil.rmtree(tmp_path / "run")

    with pytest.raises(RunError, match=r"No such file or directory .*nothing can be resumed"):
        run_config(resolve(TABLES), tmp_path / "run", watchers=[remove])


def test_what_the_system_itself_refuses_is_a_sentence(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk; it holds for this process only."""
    program = (
        "import resource, signal, sys\n"
        "from covey.cli import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))\n"
        f"sys.argv = ['covey', 'run', '--rounds', '3', '--out', {str(tmp_path / 'run')!r}]\n"
        "main()\n"
    )
    done = python(program)
    assert done.returncode == 1
    assert "cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", [300 * "x", 5000 * "x/", "a\0b"])
def test_a_name_that_no_folder_can_have_is_a_sentence(tmp_path: Path, name: str) -> None:
    for use in (
        lambda: run_config(resolve(TABLES), tmp_path / name),
        lambda: resume(tmp_path / name),
        lambda: read_run(tmp_path / name),
    ):
        with pytest.raises(UserError, match=r"cannot be|is not a run folder") as mistake:
            use()
        assert len(str(mistake.value)) < 700


def test_the_journal_is_checked_before_it_becomes_a_table(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "metrics.jsonl")
    journal.begin()
    journal.append([(1, 0.0, 0, -1, -1, "global-test", "accuracy", 0.5)])
    assert journal.table().num_rows == 1
    journal.path.write_bytes(journal.path.read_bytes().replace(b"0.5", b"0.7"))
    with pytest.raises(UserError, match=r"metrics.jsonl is damaged"):
        journal.table()
