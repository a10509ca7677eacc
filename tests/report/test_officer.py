"""The officer's page of a run: the ledger's numbers, the mechanism of each level, and what is exact."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import covey
from covey.folder.read import read_run
from covey.report.officer import at_most, of_run, page, promise


def made(tmp_path: Path, method: str = "fedavg", **tables: Any) -> Path:
    settings = {"data": {"name": "digits", "clients": 12}, "train": {"batches": 1}, **tables}
    covey.run(method, rounds=2, out=tmp_path / "run", progress=False, **settings)
    return tmp_path / "run"


def test_covey_at_the_client_level_has_a_line_for_each_part(tmp_path: Path) -> None:
    statement = of_run(read_run(made(tmp_path, "covey", private={"epsilon": 8.0})))
    lines = {line.what: line for line in statement.lines}
    assert set(lines) == {"embeddings", "updates", "all", "evaluations"}
    assert lines["all"].client == pytest.approx(8.0, abs=0.01)
    assert max(lines["embeddings"].client, lines["updates"].client) < lines["all"].client
    assert lines["updates"].person == lines["updates"].sample > lines["updates"].client
    assert lines["evaluations"].mechanism == "none: exact"
    text = page(statement)
    assert "one client were among it or not" in text
    assert "The server is honest" in text
    assert "they have no guarantee and must stay where these data are" in text
    assert "a simulation" in text


def test_without_private_nothing_is_promised(tmp_path: Path) -> None:
    text = page(of_run(read_run(made(tmp_path))))
    assert "nothing is promised about single persons" in text
    assert "No [private] table was set" in text


def test_at_the_example_level_persons_are_the_sites_to_count(tmp_path: Path) -> None:
    private = {"level": "example", "epsilon": 4.0, "clip": 1.0}
    statement = of_run(read_run(made(tmp_path, private=private, measure={"local_test": False})))
    [updates, whole] = statement.lines
    assert updates.sample == pytest.approx(4.0, abs=1e-3)
    assert updates.person is None
    assert "DP-SGD at the client" in updates.mechanism
    assert "one sample were among it or not" in page(statement)
    assert "e^4.01 = 56," in promise(replace(statement, lines=[replace(whole, sample=4.01)]))  # 55.15
    assert whole.what == "all"


@pytest.mark.parametrize(
    ("epsilon", "words"), [(7.9946, "8"), (0.50001, "0.501"), (2.0, "2"), (19.11, "19.2")]
)
def test_a_bound_in_words_is_never_below_what_was_spent(epsilon: float, words: str) -> None:
    assert at_most(epsilon) == words
