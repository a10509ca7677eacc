"""What the page says of the clients is true to the rows."""

import json
from pathlib import Path

from covey.folder.rows import read_journal
from covey.report.fleet_view import fleet_view, groups_in_view


def test_a_client_that_trains_twice_in_a_round_worked_in_one(tmp_path: Path) -> None:
    """Client 4 is asked twice in each of two rounds, client 7 once in one of them."""
    busy = [(1, 4, 0.5), (1, 4, 0.25), (1, 7, 0.5), (2, 4, 0.5), (2, 4, 0.25)]
    rows = [[number, 1.0, 0, client, -1, "fleet", "busy", seconds] for number, client, seconds in busy]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    view = fleet_view(read_journal(tmp_path / "metrics.jsonl"), {})
    assert view["ids"] == [[4], [7]]
    assert view["worked"] == [2, 1]
    assert view["often"] == [1, 1.5, 2]


def test_a_journal_whose_counts_are_no_numbers_is_shown(tmp_path: Path) -> None:
    """Found by the fuzzer: NaN as a group, as a true cluster and as the number of lost replies."""
    lines = [
        (-1, 0, "data", "cluster"),
        (1, 0, "groups", "group"),
        (1, -1, "fleet", "lost"),
        (1, 0, "fleet", "busy"),
    ]
    rows = [[number, 1.0, 0, client, -1, split, name, float("nan")] for number, client, split, name in lines]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = read_journal(tmp_path / "metrics.jsonl")
    assert groups_in_view(read) in ({}, {0: -1})
    assert fleet_view(read, {})["ids"] == [[0]]
