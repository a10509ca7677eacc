"""A run that one client spoils goes back to the last good checkpoint and on without that client."""

from pathlib import Path

import pytest
import torch

from covey.errors import SpoiledRunError
from covey.folder.checkpoint import load_checkpoint
from covey.parts.steps import train as training
from covey.runs.config import resolve
from covey.runs.run import run_config

TABLES = {
    "rounds": 6,
    "checkpoint_seconds": 0.0,
    "data": {"clients": 4},
    "train": {"lr": 0.1, "epochs": 1},
    "engine": {"mode": "serial", "lanes": False},
    "measure": {"global_test": False, "local_test": False},
}


@pytest.fixture
def spoiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client 2 answers round 3 with a row of 1e30."""
    honest = training.Train.__call__

    def hostile(step, client, task):  # type: ignore[no-untyped-def]
        reply = honest(step, client, task)
        if (client.id, client.round) == (2, 3):
            reply.vector.fill_(1e30)
        return reply

    monkeypatch.setattr(training.Train, "__call__", hostile)


def test_the_run_goes_back_before_the_update_and_bars_its_sender(tmp_path: Path, spoiler: None) -> None:
    said: list[str] = []
    config = resolve({**TABLES, "guard": {"norm": 0}})
    done = run_config(config, tmp_path / "run", say=said.append, report=False)
    assert done.state.round == 6
    assert torch.isfinite(done.state.models).all()
    assert 2 not in done.state.worked
    assert any("Back to round 2 and on without client 2" in line for line in said)
    assert any(one.client == 2 for one in done.summary.refused.examples)
    assert any("refused, first of all client 2" in line for line in said)
    kept = load_checkpoint(tmp_path / "run")
    assert kept is not None
    assert "2" in kept.fleet["ledger"]["barred"]


def test_the_rounds_that_were_gone_back_are_in_no_table(tmp_path: Path, spoiler: None) -> None:
    import pyarrow.parquet as pq

    run_config(resolve({**TABLES, "guard": {"norm": 0}}), tmp_path / "run", report=False)
    rows = pq.read_table(tmp_path / "run" / "metrics.parquet").to_pylist()
    replied = [(row["round"], row["value"]) for row in rows if row["metric"] == "replied"]
    assert replied == [(1, 4), (2, 4), (3, 3), (4, 3), (5, 3), (6, 3)]


def test_with_one_checkpoint_there_is_nothing_to_go_back_to(tmp_path: Path, spoiler: None) -> None:
    config = resolve({**TABLES, "guard": {"norm": 0}, "checkpoints": 1})
    with pytest.raises(SpoiledRunError, match="In round 3 the update of client 2"):
        run_config(config, tmp_path / "run", report=False)


def test_with_the_guard_it_does_not_come_to_that(tmp_path: Path, spoiler: None) -> None:
    said: list[str] = []
    done = run_config(resolve(TABLES), tmp_path / "run", say=said.append, report=False)
    assert done.state.worked == (0, 1, 2, 3)
    assert not any("Back to round" in line for line in said)


def test_a_run_that_diverges_by_itself_names_the_learning_rate(tmp_path: Path) -> None:
    config = resolve({**TABLES, "train": {"lr": 1e9, "epochs": 1}})
    with pytest.raises(SpoiledRunError, match=r"lower train\.lr"):
        run_config(config, tmp_path / "run", report=False)
