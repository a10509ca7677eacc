"""What the page says of the clients is true to the rows."""

import json
from pathlib import Path

from covey.folder.rows import read_journal
from covey.report.fleet_view import fleet_view


def test_a_client_that_trains_twice_in_a_round_worked_in_one(tmp_path: Path) -> None:
    """Client 4 is asked twice in each of two rounds, client 7 once in one of them."""
    busy = [(1, 4, 0.5), (1, 4, 0.25), (1, 7, 0.5), (2, 4, 0.5), (2, 4, 0.25)]
    rows = [[number, 1.0, 0, client, -1, "fleet", "busy", seconds] for number, client, seconds in busy]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    view = fleet_view(read_journal(tmp_path / "metrics.jsonl"), {})
    assert view["ids"] == [[4], [7]]
    assert view["worked"] == [2, 1]
    assert view["often"] == [1, 1.5, 2]
