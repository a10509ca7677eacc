"""Numbers and curves read off a finished run."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from covey.core.ledger import Cost
from covey.folder.rows import SCHEMA, table_of
from covey.folder.summary import Costs, Summary
from experiments.cells import read_cell, series


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three rounds that send 10, 0 and 10 models; accuracy is measured after rounds 2 and 3."""
    rows = [
        '[1, 0.0, 0, -1, -1, "fleet", "messages:mix.peers", 10]',
        '[2, 0.0, 0, -1, -1, "fleet", "messages:mix.peers", 0]',
        '[2, 0.0, 0, -1, -1, "global-test", "accuracy", 0.5]',
        '[3, 0.0, 0, -1, -1, "fleet", "messages:mix.peers", 10]',
        '[3, 0.0, 0, -1, -1, "global-test", "accuracy", 0.75]',
        '[3, 0.0, 0, -1, 4, "global-test", "accuracy", 0.1]',
    ]
    table = table_of([json.loads(row) for row in rows])
    assert table.schema == SCHEMA
    pq.write_table(table, tmp_path / "metrics.parquet")
    return tmp_path


def test_accuracy_against_messages(folder: Path) -> None:
    sent, accuracy = series(folder, "global-test/accuracy", "messages:mix.peers")
    assert sent.tolist() == [10, 20]
    assert accuracy.tolist() == [0.5, 0.75]


def test_messages_of_one_kind(folder: Path) -> None:
    peers = Cost(messages=20, bytes_peer=800, seconds=1.5)
    summary = Summary(cost=Costs(messages=25, bytes_peer=800, seconds=1.5, by_kind={"mix.peers": peers}))
    assert read_cell("cost:messages", summary, folder) == 25
    assert read_cell("cost:messages:mix.peers", summary, folder) == 20
    assert read_cell("cost:bytes:mix.peers", summary, folder) == 800
    assert read_cell("cost:messages:query.labels", summary, folder) == 0


def test_accuracy_after_the_same_time_for_all(tmp_path: Path) -> None:
    """Rounds end after 10, 25 and 40 s: by 30 s two of them did; a run that ends before says nothing."""
    times = [(1, 10.0, 0.2), (2, 25.0, 0.4), (3, 40.0, 0.9)]
    rows = [[number, at, 0, -1, -1, "local-test", "accuracy-mean", value] for number, at, value in times]
    pq.write_table(table_of(rows), tmp_path / "metrics.parquet")
    assert read_cell("after:local-test/accuracy-mean:30:5", Summary(), tmp_path) == pytest.approx(0.3)
    assert read_cell("after:local-test/accuracy-mean:30:1", Summary(), tmp_path) == 0.4
    assert read_cell("after:local-test/accuracy-mean:50:5", Summary(), tmp_path) is None
